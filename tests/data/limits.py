"""Running a function where files may not grow beyond a limit, as on a full disk."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable

from protopyramid.errors import UserError


def error_with_file_limit(size: int, function: Callable[[], object]) -> str:
    """The message of the UserError that a function raises in a process whose files have a limit."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            function()
            message = "no error"
        except UserError as error:
            message = str(error)
        except BaseException as error:
            message = repr(error)
        os.write(writing, message.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        message = file.read()
    os.waitpid(child, 0)
    return message
