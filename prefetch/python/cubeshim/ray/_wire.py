"""Carries items and batches through Ray's object store. The bytes of tensors and arrays are kept
outside the pickle and are copied only one time.

By default, Ray would serialize each tensor with torch.save. The unpacked data is writable and
belongs to the receiver, like data from torch's workers."""
import io
import pickle

LEAST = 4096  # bytes; smaller arrays are put into the pickle


def of_tensor(kind, shape, buffer):
    """Makes a tensor from its bytes. The inverse of Pickler.reducer_override."""
    import torch
    return torch.frombuffer(buffer, dtype=kind).reshape(shape)


def pickler():
    import torch
    from ray import cloudpickle

    class Pickler(cloudpickle.CloudPickler):
        """Derived from cloudpickle, which can pickle classes of a program's main file. Passes plain
        tensors as bytes."""
        def reducer_override(self, value):
            if type(value) is torch.Tensor and is_plain(value):
                data = value.contiguous().flatten().view(torch.uint8).numpy()
                return of_tensor, (value.dtype, tuple(value.shape), pickle.PickleBuffer(data))
            return super().reducer_override(value)

    def is_plain(value):
        return (value.device.type == "cpu" and value.layout is torch.strided
                and not value.requires_grad and value.numel()
                and not (value.is_quantized or value.is_conj() or value.is_neg()))

    return Pickler


_made = []  # holds the class after torch and ray were imported


def pack(value):
    """Returns (pickle, [arrays]). Ray puts the arrays into its store unchanged."""
    import numpy
    if not _made:
        _made.append(pickler())
    beside, file = [], io.BytesIO()

    def keep(buffer):
        raw = buffer.raw()
        if raw.nbytes < LEAST:
            return True
        beside.append(numpy.frombuffer(raw, numpy.uint8))
        return False

    _made[0](file, protocol=5, buffer_callback=keep).dump(value)
    return file.getvalue(), beside


def unpack(packed):
    data, beside = packed
    return pickle.loads(data, buffers=[array.copy() for array in beside])
