"""Reads files of torch.save, without PyTorch and without executing code of a pickle.

A file is a zip of data.pkl, with tensors that refer to storages, and an entry for each storage. The
unpickler below supports tensors, dictionaries, numbers and a few empty shells; any other name is an error.
"""

import collections
import dataclasses
import pickle
import zipfile

# Storage classes: (safetensors dtype, bytes of an element).
STORAGES = {"FloatStorage": ("F32", 4), "HalfStorage": ("F16", 2), "BFloat16Storage": ("BF16", 2),
            "DoubleStorage": ("F64", 8), "LongStorage": ("I64", 8), "IntStorage": ("I32", 4),
            "ShortStorage": ("I16", 2), "CharStorage": ("I8", 1), "ByteStorage": ("U8", 1),
            "BoolStorage": ("BOOL", 1)}


class CheckpointError(Exception):
    """An unreadable checkpoint; the message has the reason and advice."""


class Shell:
    """Placeholder for an object not needed by the conversion, such as the training options."""

    def __init__(self, *_, **__):
        pass

    def __setstate__(self, state):
        pass


@dataclasses.dataclass(frozen=True)
class Storage:
    key: str
    dtype: str
    width: int
    elements: int


@dataclasses.dataclass(frozen=True)
class Tensor:
    storage: Storage
    offset: int
    shape: tuple
    stride: tuple

    @property
    def elements(self):
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def dtype(self):
        return self.storage.dtype

    @property
    def bytes(self):
        return self.elements * self.storage.width

    def dense(self):
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.stride)):
            if size > 1 and stride != expected:
                return False
            expected *= size
        return True

    def last_element(self):
        return self.offset + sum((n - 1) * s for n, s in zip(self.shape, self.stride))


def rebuild_tensor(storage, offset, shape, stride, *_):
    numbers = [offset, *shape, *stride]
    if not isinstance(storage, Storage) or any(type(n) is not int or n < 0 for n in numbers) or \
            len(shape) != len(stride):
        raise CheckpointError("holds a damaged tensor; download it again")
    tensor = Tensor(storage, offset, tuple(shape), tuple(stride))
    if tensor.elements and tensor.last_element() >= storage.elements:
        raise CheckpointError(f"a tensor {list(shape)} reaches beyond its storage; download it again")
    return tensor


def rebuild_parameter(tensor, *_):
    return tensor


KNOWN = {("collections", "OrderedDict"): collections.OrderedDict,
         ("torch._utils", "_rebuild_tensor_v2"): rebuild_tensor,
         ("torch._utils", "_rebuild_parameter"): rebuild_parameter,
         ("torch", "Size"): tuple,
         ("argparse", "Namespace"): Shell}


class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if module in ("torch", "torch.storage") and name in STORAGES:
            return (name,)  # never called: only the reference of a storage uses this
        if (module, name) in KNOWN:
            return KNOWN[module, name]
        raise CheckpointError(f"holds an object '{module}.{name}', which is not read because reading it "
                              "could run code; save only the tensors of the model")

    def persistent_load(self, reference):
        try:
            kind, (name,), key, _, elements = reference
            dtype, width = STORAGES[name]
            if kind == "storage" and isinstance(elements, int) and elements >= 0:
                return Storage(str(key), dtype, width, elements)
        except (TypeError, ValueError, KeyError):
            pass
        raise CheckpointError("refers to its data in an unknown way; save it with torch.save again")


class Checkpoint:
    """An open file: `content` as saved, tensors by reference; pieces() reads their bytes."""

    def __init__(self, path):
        with open(path, "rb") as file:  # a missing file raises the system's error
            start = file.read(8)
        try:
            self.zip = zipfile.ZipFile(path)
        except zipfile.BadZipFile:
            if start[:1] == b"\x80":
                raise CheckpointError("is a pickle of before PyTorch 1.6, which is not read; load it with "
                                      "PyTorch and torch.save it again") from None
            if start.startswith(b"PK"):
                raise CheckpointError("is cut short or damaged; download it again") from None
            raise CheckpointError("is no PyTorch checkpoint (no zip archive)") from None
        try:
            self.content = self._read()
        except BaseException:
            self.zip.close()
            raise

    def _read(self):
        names = [n for n in self.zip.namelist() if n.endswith("/data.pkl") or n == "data.pkl"]
        if len(names) != 1:
            raise CheckpointError("is a zip archive without data.pkl; expected what torch.save writes")
        self.prefix = names[0][:-len("data.pkl")]
        self.entries = {entry.filename: entry for entry in self.zip.infolist()}
        order = self.prefix + "byteorder"
        if order in self.entries and self.zip.read(order) != b"little":
            raise CheckpointError("was saved on a big-endian machine; save it on a little-endian one")
        try:
            with self.zip.open(names[0]) as file:
                return Unpickler(file).load()
        except CheckpointError:
            raise
        except Exception as error:  # a damaged pickle may raise any exception
            raise CheckpointError(f"has a damaged data.pkl ({type(error).__name__}: {error}); "
                                  "download it again") from None

    def _open(self, storage):
        name = f"{self.prefix}data/{storage.key}"
        entry = self.entries.get(name)
        if entry is None or entry.file_size < storage.elements * storage.width:
            raise CheckpointError(f"lacks {'the data' if entry is None else 'a part of the data'} of "
                                  f"storage {storage.key}; download it again")
        return self.zip.open(entry)

    def pieces(self, tensor, size):
        """Yields the bytes of a tensor in row-major order, at most about `size` at once."""
        width = tensor.storage.width
        if tensor.elements == 0:
            return
        try:
            with self._open(tensor.storage) as file:
                file.seek(tensor.offset * width)
                if not tensor.dense():
                    span = (tensor.last_element() - tensor.offset + 1) * width
                    yield gathered(self._exactly(file, span), tensor)
                    return
                left = tensor.bytes
                while left:
                    piece = self._exactly(file, min(left, size))
                    left -= len(piece)
                    yield piece
        except (zipfile.BadZipFile, EOFError) as error:
            raise CheckpointError(f"is damaged ({error}); download it again") from None

    @staticmethod
    def _exactly(file, count):
        data = file.read(count)
        if len(data) != count:
            raise CheckpointError("is cut short; download it again")
        return data

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.zip.close()


def gathered(data, tensor):
    """Returns the elements of a strided tensor, in order."""
    width = tensor.storage.width
    starts = [0]
    for size, stride in zip(tensor.shape, tensor.stride):
        starts = [start + i * stride for start in starts for i in range(size)]
    return b"".join(data[s * width:(s + 1) * width] for s in starts)
