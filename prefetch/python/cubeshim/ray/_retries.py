"""Waits for answers from the workers, has lost answers computed again, and raises torch's errors if
no answer arrives."""
import time

import ray

LOST = "DataLoader worker was lost %d times over batch %d"
# Retries of one batch. They are limited, because an item that kills its process must not kill one
# worker after another.
MOST_TRIES = 4


class Ended:
    """The worker's copy of an IterableDataset has ended."""


def get(refs, again, batch, timeout):
    """Returns the values of `refs()`. If an answer was lost, calls `again(error)` and then `refs()`
    again."""
    deadline = time.monotonic() + timeout if timeout > 0 else None
    for tries in range(MOST_TRIES):
        try:
            return ray.get(
                refs(), timeout=None if deadline is None else max(deadline - time.monotonic(), 0))
        except ray.exceptions.GetTimeoutError:
            raise RuntimeError("DataLoader timed out after {} seconds".format(timeout)) from None
        except (ray.exceptions.RayTaskError, ray.exceptions.RuntimeEnvSetupError,
                ray.exceptions.TaskCancelledError):
            raise
        except ray.exceptions.RayError as error:
            if tries + 1 == MOST_TRIES:
                raise RuntimeError((LOST + ": %s") % (MOST_TRIES, batch, error)) from error
            again(error)
