"""One test of many small cases: each reports what failed, and costs a hundredth of a test of its own."""

from collections.abc import Callable, Iterable
from typing import TypeVar

Case = TypeVar("Case")


def for_all(cases: Iterable[Case]) -> Callable[[Callable[[Case], None]], Callable[[], None]]:
    """Run a test for every case. If some fail, ExceptionGroup has an error for each, with the case in its notes."""
    every = list(cases)
    assert every

    def decorate(test: Callable[[Case], None]) -> Callable[[], None]:
        def run() -> None:
            failures = []
            for case in every:
                try:
                    test(case)
                except Exception as error:  # noqa: BLE001 - is raised with those of the other cases
                    error.add_note(f"The case: {case}")
                    failures.append(error)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(every)} cases fail", failures)

        run.__name__ = test.__name__
        run.__qualname__ = test.__qualname__
        run.__module__ = test.__module__
        run.__doc__ = test.__doc__
        return run

    return decorate
