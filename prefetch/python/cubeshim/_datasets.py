"""Finds out which files a data set reads for an index. The result is a function from an index to
paths, or None if the files are not known."""
import bisect
import os
import pickle
import sys

from cubeshim._guesses import of_guesses
from cubeshim._dataset_lists import (is_absolute, is_list, is_path, of_lists, own, paths_of,
                                     resolve_below)

MOST_NESTED = 8


def is_of(dataset, module, name):
    known = getattr(sys.modules.get(module), name, None)
    return isinstance(known, type) and issubclass(type(dataset), known)


def kind_of(dataset):
    for module in ("torch.utils.data", "paddle.io"):
        for name in ("IterableDataset", "Subset", "ConcatDataset"):
            if is_of(dataset, module, name):
                return name
    return None


def of_method(dataset, length):
    """Handles a data set that names its files itself, by this method."""
    method = getattr(dataset, "train_data_list", None) if hasattr(type(dataset),
                                                                  "train_data_list") else None
    if not callable(method):
        return None
    lists = method()
    if is_list(lists, length):
        lists = [lists]
    return resolve_below(
        list(lists), "") if lists and all(is_list(entries, length) for entries in lists) else None


def of_coco(dataset):
    coco, root, ids = (own(dataset).get(name) for name in ("coco", "root", "ids"))
    if not is_path(root) or not hasattr(coco, "loadImgs") or not hasattr(ids, "__getitem__"):
        return None
    return lambda index: [os.path.join(root, coco.loadImgs(ids[index])[0]["file_name"])]


def of_hugging_face(dataset):
    """Handles columns of pictures and similar data that contain paths instead of bytes."""
    if not is_of(dataset, "datasets", "Dataset"):
        return None
    table, indices, wanted = own(
        own(dataset)["_data"])["table"], own(dataset)["_indices"], own(dataset)["_format_columns"]
    compute = sys.modules["pyarrow.compute"]
    columns = []
    for field in table.schema:
        parts = {field.type.field(i).name for i in range(field.type.num_fields)}
        if {"bytes", "path"} <= parts and (wanted is None or field.name in wanted):
            column = table.column(field.name)
            if compute.struct_field(column, "bytes").null_count == len(column):
                columns.append(compute.struct_field(column, "path"))
    if not columns:
        return None
    rows = None if indices is None else own(indices)["table"].column(0)

    def resolve(index):
        row = index if rows is None else rows[index].as_py()
        # If the bytes are stored elsewhere, the columns contain bare names.
        return [path for path in (column[row].as_py() for column in columns) if is_absolute(path)]

    return resolve


def of_mmengine(dataset, length):
    """OpenMMLab stores its entries pickled, one after another, and unpickles one entry for each
    item."""
    if not is_of(dataset, "mmengine.dataset", "BaseDataset"):
        return None
    entries, ends = (own(dataset).get(name) for name in ("data_bytes", "data_address"))
    if entries is None or ends is None or len(ends) != length:
        return None

    def resolve(index):
        index = range(length)[index]
        begin = int(ends[index - 1]) if index else 0
        return [
            path for path in paths_of(pickle.loads(memoryview(entries[begin:int(ends[index])])))
            if is_absolute(path)
        ]

    return resolve


def of_parts(dataset, kind, depth):
    """Handles Subset and ConcatDataset of torch or paddle."""
    if kind == "Subset":
        inner, indices = resolver(own(dataset).get("dataset"), depth), own(dataset).get("indices")
        return inner and (lambda index: inner(indices[index]))
    parts = [resolver(part, depth) for part in own(dataset)["datasets"]]
    ends = list(own(dataset)["cumulative_sizes"])
    if not any(parts):
        return None

    def resolve(index):
        if index < 0:
            index += ends[-1]
        which = bisect.bisect_right(ends, index)
        return parts[which](index - (ends[which - 1] if which else 0)) if parts[which] else []

    return resolve


def of_wrapped(dataset, length, depth):
    """Handles a data set that passes its index on to another data set of the same length, or to a
    reader (timm)."""
    for name in ("reader", "parser"):
        reader = own(dataset).get(name)
        found = None if reader is None else of_lists(reader, length)
        if found is not None:
            return found
    for name in ("dataset", "base_dataset", "base", "ds", "data"):
        inner = own(dataset).get(name, own(dataset).get("_" + name))
        is_known = any(
            is_of(inner, *known)
            for known in (("torch.utils.data", "Dataset"), ("datasets", "Dataset")))
        if is_known and kind_of(inner) != "IterableDataset" and hasattr(
                type(inner), "__len__") and len(inner) == length:
            found = resolver(inner, depth)
            if found is not None:
                return found
    return None


def resolver(dataset, depth=MOST_NESTED):
    kind = kind_of(dataset)
    can_be_asked = hasattr(type(dataset), "__getitem__") and hasattr(type(dataset), "__len__")
    if depth == 0 or kind == "IterableDataset" or not can_be_asked:
        return None
    if kind is not None:
        return of_parts(dataset, kind, depth - 1)
    if is_of(dataset, "datasets", "Dataset"):
        return of_hugging_face(dataset)
    length = len(dataset)
    if type(dataset) in (list, tuple):
        return resolve_below([dataset], "") if is_list(dataset, length) else None
    return (of_method(dataset, length) or of_lists(dataset, length) or of_coco(dataset)
            or of_mmengine(dataset, length) or of_wrapped(dataset, length, depth - 1)
            or of_guesses(dataset, length))
