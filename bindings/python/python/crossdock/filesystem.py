"""Managed directories as an fsspec file system: `fsspec.open("crossdock:///data/frames/7.h5")` waits for the file.

pandas, xarray, zarr, Dask and others open such addresses. This needs the package fsspec, which finds the class
`FileSystem` by itself.
"""

import errno
import os

from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped,import-not-found,unused-ignore]

from . import NotFoundError, TimedOutError, await_file

__all__ = ["FileSystem"]


class FileSystem(LocalFileSystem):
    """The local file system. Opening a file for reading waits until a producer has published it, as
    `crossdock.open` does.

    A wait that ends without the file raises FileNotFoundError (the producers have ended) or TimeoutError, with the full
    reason in its message.
    """

    protocol = "crossdock"

    @classmethod
    def _strip_protocol(cls, path):
        path = os.fspath(path)
        return super()._strip_protocol(path[len("crossdock://") :] if path.startswith("crossdock://") else path)

    def _open(self, path, mode="rb", block_size=None, **kwargs):
        if not set(mode) & set("wxa+"):
            _await(path)
        return super()._open(path, mode, block_size, **kwargs)

    def info(self, path, **kwargs):
        """Waits until the file exists, and returns its size and kind."""
        if not isinstance(path, os.DirEntry):
            path = self._strip_protocol(path)
            _await(path)
        return super().info(path, **kwargs)

    def exists(self, path, **kwargs):
        """Waits for the file as an open does. Returns False if opening it would fail."""
        try:
            self.info(path, **kwargs)
        except OSError:
            return False
        return True


def _await(path):
    try:
        await_file(path)
    except NotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, str(error), path) from error
    except TimedOutError as error:
        raise TimeoutError(errno.ETIMEDOUT, str(error), path) from error
