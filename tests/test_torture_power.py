"""Loss of power, in a few seconds: `make torture ONLY=power` examines more images."""

import pytest

from torture import crashes, power, power_commands
from torture.power import Outcome

pytestmark = [pytest.mark.anyio, pytest.mark.system]


def assert_nothing_lost(outcome: Outcome, images: int) -> None:
    assert outcome.images >= images
    assert [] == outcome.problems


async def test_a_loss_of_power_loses_nothing_that_was_acknowledged() -> None:
    outcome = await power.served(7, 12, orders=150)
    assert outcome.acknowledged > 150
    assert_nothing_lost(outcome, 5)


async def test_a_server_that_flushes_nothing_is_found_out() -> None:
    outcome = await power.served(7, 5, orders=100, flush=False)
    assert "order 1 is lost" in " ".join(outcome.problems)


async def test_nothing_is_acknowledged_while_flushes_fail_and_nothing_is_lost_by_it() -> None:
    outcome = await power.failing_flushes(7, 6, orders=300, faults=2)
    assert outcome.faults >= 2
    assert outcome.acknowledged > 50
    assert_nothing_lost(outcome, 5)


async def test_a_loss_of_power_during_an_import_leaves_whole_batches() -> None:
    assert_nothing_lost(await power_commands.imported(7, 8, orders=1_500), 6)


async def test_a_loss_of_power_during_a_restore_leaves_one_store_or_the_other() -> None:
    assert_nothing_lost(await power_commands.restored(7, 10), 6)


async def test_a_loss_of_power_during_a_backup_leaves_a_whole_one_or_none() -> None:
    assert_nothing_lost(await power_commands.backed_up(7, 10), 6)


async def test_a_loss_of_power_during_a_migration_leaves_a_store_or_an_empty_file() -> None:
    assert_nothing_lost(await power_commands.migrated(7, 10), 6)


async def test_postgresql_killed_with_all_its_processes_loses_nothing_that_was_acknowledged() -> None:
    outcome = await crashes.killed(7, 2)
    assert outcome.acknowledged > 10
    assert_nothing_lost(outcome, 2)
