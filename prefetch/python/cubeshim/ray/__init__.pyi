from os import PathLike
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from torch.utils.data import DataLoader as _TorchLoader

__all__: List[str]

_Path = Union[str, bytes, "PathLike[str]", "PathLike[bytes]"]
_Setting = Union[str, int, bool, "PathLike[str]"]

def env(
    prefixes: Union[_Path, Sequence[_Path]],
    *,
    library: Optional[_Path] = None,
    runtime_env: Optional[Mapping[str, Any]] = None,
    **settings: _Setting,
) -> Dict[str, Any]: ...

class DataLoader(_TorchLoader[Any]):
    def __init__(
        self,
        dataset: Any,
        *arguments: Any,
        distribute: bool = True,
        split: Optional[bool] = None,
        ray_options: Optional[Mapping[str, Any]] = None,
        **more: Any,
    ) -> None: ...
