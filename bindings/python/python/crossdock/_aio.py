"""Waiting for a port in an event loop: the port's descriptor becomes readable when a message has arrived or
a peer has died.

The first ``await`` loads this module, so that ``import crossdock`` does not load asyncio.
"""

import asyncio
import os
import time

from ._errors import ClosedError, NotYetError, TimedOutError

DEFAULT_WAIT_S = 60.0
# If a port is closed in this process, its descriptor is closed as well, and this does not wake a coroutine that waits
# for the descriptor. So a waiting coroutine checks at intervals of this many seconds whether the port is closed.
SLICE_S = 0.1
# The time until a coroutine looks again if the loop cannot wait for the port's descriptor.
POLL_S = 0.01


async def receive(port, timeout=None):
    """Waits for the next message of `port` and returns it. Other coroutines of the loop run meanwhile."""
    deadline = time.monotonic() + (DEFAULT_WAIT_S if timeout is None else timeout)
    while True:
        try:
            return port.receive(timeout=0)
        except NotYetError as not_yet:
            left = deadline - time.monotonic()
            if left <= 0:
                if timeout == 0:
                    raise
                waited = DEFAULT_WAIT_S if timeout is None else timeout
                raise TimedOutError(f"{not_yet} within {waited:g} s") from None
        if port._arm():
            continue  # a message has arrived or the producer is gone already, so there is nothing to wait for
        try:
            await _readable(port.fileno(), min(left, SLICE_S))
        finally:
            if not port.closed:
                port._disarm()


async def _readable(descriptor, timeout):
    """Returns when the descriptor is readable, or after `timeout` seconds. May also return earlier."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    # The port may be closed during the wait. Then its descriptor's number may be given to a new file of the program,
    # which the loop would take for the registered one. So the loop gets a descriptor of its own.
    try:
        descriptor = os.dup(descriptor)
    except OSError:
        # The process has no free descriptor, or another thread has just closed the port.
        await asyncio.sleep(min(timeout, POLL_S))
        return

    def wake():
        if not done.done():
            done.set_result(None)

    timer = loop.call_later(timeout, wake)
    try:
        loop.add_reader(descriptor, wake)
        try:
            await done
        finally:
            loop.remove_reader(descriptor)
    finally:
        timer.cancel()
        os.close(descriptor)


async def next_message(port, timeout=None):
    """One step of ``async for``: the iteration ends when the producer has closed its end."""
    try:
        return await receive(port, timeout)
    except ClosedError:
        raise StopAsyncIteration from None


async def next_version(observer, timeout=None):
    """Waits for the next version of `observer` and returns it. A thread waits, because a series has no descriptor;
    other coroutines run meanwhile. The thread only waits and does not take the version, because the result of a thread
    is lost if the coroutine is cancelled."""
    loop = asyncio.get_running_loop()
    waited = DEFAULT_WAIT_S if timeout is None else timeout
    deadline = time.monotonic() + waited
    while True:
        try:
            return observer.next(timeout=0)
        except NotYetError as not_yet:
            left = deadline - time.monotonic()
            if left <= 0:
                if timeout == 0:
                    raise
                raise TimedOutError(f"{not_yet} (waited {waited:g} s)") from None
        try:
            await loop.run_in_executor(None, observer._wait, min(left, SLICE_S))
        except (NotYetError, TimedOutError):
            pass


async def step_version(observer):
    """One step of ``async for``: the iteration ends when the publisher has ended the series."""
    try:
        return await next_version(observer)
    except ClosedError:
        raise StopAsyncIteration from None
