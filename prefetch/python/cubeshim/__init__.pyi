from os import PathLike
from types import TracebackType
from typing import Generic, Iterable, Iterator, List, Optional, Type, TypeVar, Union

__version__: str
__all__: List[str]

_Path = TypeVar("_Path", bound=Union[str, bytes, "PathLike[str]", "PathLike[bytes]"])

class Announcement(Generic[_Path]):
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[_Path]: ...
    def close(self) -> None: ...
    def __enter__(self) -> "Announcement[_Path]": ...
    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None: ...

def announce(paths: Iterable[_Path], epoch: int = 0) -> Announcement[_Path]: ...
