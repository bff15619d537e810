"""Waits for an answer of the workers, has lost ones made again, and says torch's words where none
comes."""
import time

import ray

LOST = "DataLoader worker was lost %d times over batch %d"
MOST_TRIES = 4  # of one batch: an item that kills its process must not kill the cluster's for ever


class Ended:
    """An IterableDataset's copy has nothing more."""


def get(refs, again, batch, timeout):
    """`refs()` are asked for anew after `again(error)`."""
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
