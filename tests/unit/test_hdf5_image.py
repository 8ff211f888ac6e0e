"""HDF5 files that the library makes in memory."""

from __future__ import annotations

import io

import pytest

h5py = pytest.importorskip("h5py")

from ckpt_tools.formats._hdf5_image import SparseFile, created  # noqa: E402


def test_a_sparse_file_reads_as_it_was_written() -> None:
    image, truth = SparseFile(), bytearray(30_000)
    for start, data in ((4090, b"over the edge of a page"), (20_000, b"a" * 9000), (0, b"first"), (4092, b"again")):
        image.seek(start)
        assert image.write(data) == len(data)
        truth[start : start + len(data)] = data
    assert image.nbytes == 29_000
    assert image.extract(0, 29_000) == truth[:29_000]
    assert image.extract(4091, 12_000) == truth[4091:12_000]
    image.seek(-9000, io.SEEK_END)
    buffer = bytearray(12)
    assert image.readinto(buffer) == 12
    assert buffer == b"a" * 12
    assert image.tell() == 20_012


def test_datasets_take_no_memory() -> None:
    image = SparseFile()
    with created(image, link_order=0) as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        space = h5py.h5s.create_simple((1 << 40,))
        made = h5py.h5d.create(file.id, b"large", h5py.h5t.STD_U8LE, space, plist)
        offset = made.get_offset()
    assert image.nbytes >= offset + (1 << 40)
    assert len(image._pages) < 10
    assert image.extract(offset + 7, offset + 9) == bytes(2)
