"""A status that says failure, as an exception."""
from ._api import EMM_E_OUT_OF_HOST_MEMORY, EMM_E_OUT_OF_MEMORY, lib


class Error(RuntimeError):
    """The result of emm_last_error: `status`, `driver_result` (a CUresult, or 0) and the sentence.

    If a plugin did not load, `stage`, `path`, `hint` and `json` tell more; else they are None.
    A plugin in Python raises it with a sentence of its own.
    """

    def __init__(self, status, text=None):
        self.status = status
        self.driver_result = 0
        self.stage = self.path = self.hint = self.json = None
        if text is not None:
            super().__init__(text)
            return
        found = lib.emm_last_error().contents
        super().__init__((found.text or lib.emm_status_text(status)).decode(errors="replace"))
        self.driver_result = found.driver_result
        for name in ("stage", "path", "hint", "json"):
            value = getattr(found, name)
            setattr(self, name, value.decode(errors="replace") if value is not None else None)

    def __reduce__(self):  # pickle would call Error(text)
        return type(self), (self.status, str(self)), self.__dict__


class OutOfMemoryError(Error, MemoryError):
    """Device memory or pinned host memory is exhausted."""


def check(status):
    """Returns a success or a notice; raises the error of a failure."""
    if status >= 0:
        return status
    if status in (EMM_E_OUT_OF_MEMORY, EMM_E_OUT_OF_HOST_MEMORY):
        raise OutOfMemoryError(status)
    raise Error(status)
