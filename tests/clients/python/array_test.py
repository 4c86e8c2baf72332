#!/usr/bin/env python3
"""emm.Array on the simulated driver, read as its consumers do: by the CUDA Array Interface and DLPack."""
import ctypes
import gc
import os
import unittest
import weakref

os.environ["EMM_DRIVER_METER"] = "1"
import emm  # noqa: E402
from emm import _api  # noqa: E402

CONTEXT = emm.context_for_device(0)
valid, pointer_of, set_name = (getattr(ctypes.pythonapi, f"PyCapsule_{name}")
                               for name in ("IsValid", "GetPointer", "SetName"))
pointer_of.restype = ctypes.c_void_p
for function in (valid, pointer_of, set_name):
    function.argtypes = [ctypes.py_object, ctypes.c_char_p]


def live():
    gc.collect()
    return emm.stats(CONTEXT).live_bytes


def driver(name, *arguments):
    entry = emm.lib.emm_driver_entry(name, 12000)
    assert ctypes.CFUNCTYPE(ctypes.c_int, *map(type, arguments))(entry)(*arguments) == 0, name


def new_stream():
    info, stream = emm.ContextInfo(), ctypes.c_void_p()
    emm.check(emm.lib.emm_context_get_info(CONTEXT, ctypes.byref(info)))
    driver(b"cuCtxSetCurrent", ctypes.c_void_p(info.cuda_context))
    driver(b"cuStreamCreate", ctypes.pointer(stream), ctypes.c_uint(1))
    return stream.value


def waits():
    """How often a stream was made to wait for another."""
    found = {}

    @_api.DriverCountVisitor
    def note(name, calls, _):
        found[name] = calls
        return 0

    emm.check(emm.lib.emm_foreach_driver_count(note, None))
    return found.get(b"cuStreamWaitEvent", 0)


class Producer:
    def __init__(self, **interface):
        self.__cuda_array_interface__ = interface


class Interface(unittest.TestCase):
    def test_an_array_describes_itself_and_its_memory_goes_with_it(self):
        before = live()
        array = emm.Array(CONTEXT, (4, 8), "<f8")
        interface = array.__cuda_array_interface__
        pointer, read_only = interface.pop("data")
        self.assertEqual(interface, {"shape": (4, 8), "typestr": "<f8", "version": 3, "strides": None, "stream": None})
        self.assertEqual((pointer % 256, read_only), (0, False))
        self.assertEqual(live(), before + 256)
        del array
        self.assertEqual(live(), before)

    def test_an_array_of_no_elements_or_of_one_is_described(self):
        self.assertEqual(emm.Array(CONTEXT, (3, 0)).__cuda_array_interface__["data"], (0, False))
        self.assertEqual(emm.Array(CONTEXT, ()).__cuda_array_interface__["shape"], ())

    def test_what_breaks_a_rule_is_refused_and_takes_no_memory(self):
        before = live()
        for shape, typestr in (((2,), "f4"), ((-1,), "<f4"), ((2,), "|O8")):
            with self.assertRaises(emm.Error):
                emm.Array(CONTEXT, shape, typestr)
        self.assertEqual(live(), before)

    def test_strides_are_as_many_as_the_shape_has_numbers(self):
        data = emm.Array(CONTEXT, (2, 3)).__cuda_array_interface__["data"]
        for strides in ((4,), (), (12, 4, 99)):
            producer = Producer(shape=(2, 3), typestr="<f4", data=data, version=3, strides=strides)
            with self.assertRaisesRegex(emm.Error, f"strides: expected 2 numbers.* found {len(strides)}"):
                emm.Array.of(CONTEXT, producer)

    def test_the_stream_of_the_data_is_told_and_never_as_0(self):
        stream = new_stream()
        for given, told in ((stream, stream), (emm.EMM_STREAM_LEGACY, 1), (emm.EMM_STREAM_PER_THREAD, 2)):
            array = emm.Array(CONTEXT, (4,), stream=given)
            self.assertEqual(array.__cuda_array_interface__["stream"], told)

    def test_an_imported_array_keeps_its_producer_until_the_last_tensor_goes(self):
        given = emm.Array(CONTEXT, (4, 8))
        interface = dict(given.__cuda_array_interface__, shape=(4, 4), strides=(32, -4))
        interface["data"] = (interface["data"][0] + 28, True)
        producer = Producer(**interface)
        kept = weakref.ref(producer)
        taken = emm.Array.of(CONTEXT, producer)
        self.assertEqual(taken.__cuda_array_interface__, dict(interface, version=3))
        tensor = taken.__dlpack__(max_version=(1, 0))
        del producer, taken
        gc.collect()
        self.assertIsNotNone(kept())
        del tensor
        gc.collect()
        self.assertIsNone(kept())

    def test_a_producer_that_is_refused_is_let_go(self):
        producer = Producer(shape=(4,), typestr="<f4", data=(12, False), version=3)
        kept = weakref.ref(producer)
        with self.assertRaises(emm.Error):
            emm.Array.of(CONTEXT, producer)
        masked = Producer(shape=(4,), typestr="<f4", data=(12, False), version=3, mask=producer)
        with self.assertRaisesRegex(emm.Error, "without a mask"):
            emm.Array.of(CONTEXT, masked)
        with self.assertRaises(ctypes.ArgumentError):
            emm.Array.of(1.5, producer)
        del producer, masked
        gc.collect()
        self.assertIsNone(kept())


class DLPack(unittest.TestCase):
    def test_a_tensor_that_nobody_took_goes_with_its_capsule(self):
        before = live()
        for version, name in (((1, 0), b"dltensor_versioned"), ((0, 8), b"dltensor"), (None, b"dltensor")):
            capsule = emm.Array(CONTEXT, (64,), "|u1").__dlpack__(max_version=version)
            self.assertTrue(valid(capsule, name))
            self.assertEqual(live(), before + 64)
            del capsule
            self.assertEqual(live(), before)

    def test_a_capsule_that_ends_while_an_exception_is_pending_leaves_that(self):
        before = live()
        with self.assertRaisesRegex(TypeError, "has no len"):
            len(emm.Array(CONTEXT, (64,), "|u1").__dlpack__())
        given = emm.Array(CONTEXT, (64,), "|u1")
        with self.assertRaisesRegex(TypeError, "has no len"):
            len(emm.Array.of(CONTEXT, given).__dlpack__(max_version=(1, 0)))
        del given
        self.assertEqual(live(), before)

    def test_a_tensor_that_was_taken_stays_until_its_deleter_is_called(self):
        before = live()
        array = emm.Array(CONTEXT, (64,), "|u1")
        data = array.__cuda_array_interface__["data"][0]
        capsule = array.__dlpack__(max_version=(1, 0))
        tensor = pointer_of(capsule, b"dltensor_versioned")
        used = b"used_dltensor_versioned"
        set_name(capsule, used)
        del capsule, array
        self.assertEqual(live(), before + 64)
        self.assertEqual(ctypes.c_uint32.from_address(tensor).value, 1)
        self.assertEqual(ctypes.c_uint64.from_address(tensor + 32).value, data)
        deleter = ctypes.c_void_p.from_address(tensor + 16).value
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter)(tensor)
        self.assertEqual(live(), before)

    def test_the_device_is_told_and_another_one_or_a_copy_is_refused(self):
        array = emm.Array(CONTEXT, (4,))
        self.assertEqual(array.__dlpack_device__(), (2, 0))
        self.assertTrue(valid(array.__dlpack__(dl_device=(2, 0), copy=False), b"dltensor"))
        for refused in ({"dl_device": (1, 0)}, {"copy": True}, {"stream": 0}):
            with self.assertRaises(BufferError):
                array.__dlpack__(**refused)

    def test_what_dlpack_cannot_say_is_an_error_of_buffers(self):
        with self.assertRaisesRegex(BufferError, "DLPack"):
            emm.Array(CONTEXT, (4,), "|V8").__dlpack__()

    def test_the_consumers_stream_waits_for_that_of_the_data_unless_told_not_to(self):
        producers, consumers = new_stream(), new_stream()
        array = emm.Array(CONTEXT, (4,), stream=producers)
        for stream, expected in ((consumers, 1), (None, 1), (producers, 0), (-1, 0)):
            before = waits()
            array.__dlpack__(stream=stream)
            self.assertEqual(waits() - before, expected, stream)
        before = waits()
        emm.Array(CONTEXT, (4,)).__dlpack__(stream=consumers)
        self.assertEqual(waits(), before)


if __name__ == "__main__":
    unittest.main(verbosity=2)
