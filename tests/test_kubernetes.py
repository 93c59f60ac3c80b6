"""The manifests in `deploy/kubernetes`, by the schemas of Kubernetes, as the package kubernetes-validate has them."""

from typing import Any

import pytest

from testing.cases import for_all
from testing.documents import ROOT, kubernetes_manifests

pytestmark = pytest.mark.system

OLDEST = "1.25"
"""Of Kubernetes, for the manifests."""

UNKNOWN = {"Kustomization", "ServiceMonitor"}
"""Kinds that Kubernetes itself does not have: no schema of it describes them."""


MANIFESTS = [*kubernetes_manifests(), *kubernetes_manifests(webhooks=True)]


@for_all([manifest for manifest in MANIFESTS if manifest["kind"] not in UNKNOWN])
def test_a_manifest_is_valid_for_the_oldest_and_the_newest_kubernetes(manifest: dict[str, Any]) -> None:
    import kubernetes_validate  # there with `make test-system`

    for version in (OLDEST, kubernetes_validate.latest_version()):
        kubernetes_validate.validate(manifest, version, strict=True)


def test_a_mistake_is_found() -> None:
    import kubernetes_validate

    [deployment] = [each for each in kubernetes_manifests() if each["kind"] == "Deployment"]
    deployment["spec"]["replica"] = deployment["spec"].pop("replicas")
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(deployment, OLDEST, strict=True)


def test_the_files_are_those_that_the_readme_applies() -> None:
    text = (ROOT / "deploy" / "README.md").read_text()
    for file in (ROOT / "deploy" / "kubernetes").iterdir():
        assert file.name in text
