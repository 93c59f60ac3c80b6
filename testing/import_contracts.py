"""A contract for import-linter: some modules import the standard library and themselves, nothing else."""

import sys
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class StandardLibraryOnly(Contract):
    """`modules` and the modules below them import only the standard library and each other.

    A list of forbidden packages would not notice the next one.
    """

    modules: Any = fields.ListField(subfield=fields.ModuleField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        found = []
        for root in (module.name for module in self.modules):
            for importer in sorted({root, *graph.find_descendants(root)}):
                for imported in sorted(graph.find_modules_directly_imported_by(importer)):
                    within = imported == root or imported.startswith(f"{root}.")
                    if not within and imported.partition(".")[0] not in sys.stdlib_module_names:
                        found.append((importer, imported))
        return ContractCheck(kept=not found, metadata={"found": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for importer, imported in check.metadata["found"]:
            output.print_error(f"{importer} imports {imported}, which is not in the standard library.")
