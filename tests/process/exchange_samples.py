"""Samples for the tests of `emm export` and `emm import`, written here in the formats of others: no test needs PyTorch, RMM or
Perfetto."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from emm_program import EMM, HEADER

SANITIZERS = os.environ["EMM_TEST_SANITIZERS"]
sys.path += filter(None, [os.environ.get("EMM_TEST_PROTOBUF")])  # a folder with Google's protobuf
LOG_HEADER = ("Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,"
              "Current Allocs,Start,End,Elapsed,Location\n")
RMM_HEADER = "Thread,Time,Action,Pointer,Size,Stream\n"
CALLER = "/usr/lib/liba.so+0x12 (work(int)+0x3)"


def emm(*words, stdin=b"", preexec_fn=None, **variables):
    """The finished process, with bytes as its output."""
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith("EMM_") or key == "EMM_DRIVER"}
    return subprocess.run([EMM, *map(str, words)], env={**environment, **variables}, input=stdin,
                          capture_output=True, timeout=300, check=False, preexec_fn=preexec_fn)


def row(event, address, size, time, stream="0", device=0, caller=CALLER):
    quoted = '"' + caller.replace('"', '""') + '"'
    return (f"{event},{device},{address:#x},{stream},{size},600,1000,1,{time:.9f},{time + 1e-6:.9f},"
            f"0.000001000,{quoted}\n")


def event(action, addr, size, time, stream=0):
    return {"action": action, "addr": addr, "size": size, "stream": stream, "time_us": time,
            "frames": [{"name": "f", "filename": "a.py", "line": 3}]}


def snapshot(*events, live=()):
    """As torch.cuda.memory._snapshot() gives it; `live` are pairs of address and size."""
    blocks = [{"address": address, "size": 512, "requested_size": size, "state": "active_allocated",
               "frames": []} for address, size in live]
    segments = [{"device": 0, "address": block["address"], "total_size": 512, "stream": 0,
                 "segment_pool_id": (0, 0), "is_expandable": False, "blocks": [block]} for block in blocks]
    return {"segments": segments, "device_traces": [list(events)],
            "allocator_settings": {"max_split_size": -1, "garbage_collection_threshold": 0.5,
                                   "expandable_segments": False}}


# The messages and fields of profile.proto in a heap profile: field, type ("*": repeated), number.
PROFILE = {
    "ValueType": (("type", "int64", 1), ("unit", "int64", 2)),
    "Label": (("key", "int64", 1), ("str", "int64", 2), ("num", "int64", 3), ("num_unit", "int64", 4)),
    "Sample": (("location_id", "uint64*", 1), ("value", "int64*", 2), ("label", "Label*", 3)),
    "Mapping": (("id", "uint64", 1), ("memory_start", "uint64", 2), ("memory_limit", "uint64", 3), ("file_offset", "uint64", 4),
                ("filename", "int64", 5), ("build_id", "int64", 6), ("has_functions", "bool", 7), ("has_filenames", "bool", 8),
                ("has_line_numbers", "bool", 9), ("has_inline_frames", "bool", 10)),
    "Line": (("function_id", "uint64", 1), ("line", "int64", 2)),
    "Location": (("id", "uint64", 1), ("mapping_id", "uint64", 2), ("address", "uint64", 3), ("line", "Line*", 4),
                 ("is_folded", "bool", 5)),
    "Function": (("id", "uint64", 1), ("name", "int64", 2), ("system_name", "int64", 3), ("filename", "int64", 4),
                 ("start_line", "int64", 5)),
    "Profile": (("sample_type", "ValueType*", 1), ("sample", "Sample*", 2), ("mapping", "Mapping*", 3),
                ("location", "Location*", 4), ("function", "Function*", 5), ("string_table", "string*", 6),
                ("drop_frames", "int64", 7), ("keep_frames", "int64", 8), ("time_nanos", "int64", 9),
                ("duration_nanos", "int64", 10), ("period_type", "ValueType", 11), ("period", "int64", 12),
                ("comment", "int64*", 13), ("default_sample_type", "int64", 14)),
}


def read_profile(encoded):
    """A Profile of pprof, read by Google's protobuf. Raises ImportError where that is not installed, and AssertionError where a
    message has a field that profile.proto has not."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, unknown_fields
    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package="emm.test", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for message, fields in PROFILE.items():
        described = file.message_type.add(name=message)
        for name, kind, number in fields:
            is_repeated, kind = kind.endswith("*"), kind.rstrip("*")
            field = described.field.add(name=name, number=number,
                                        label=kinds.LABEL_REPEATED if is_repeated else kinds.LABEL_OPTIONAL)
            if kind in PROFILE:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".emm.test.{kind}"
            else:
                field.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    profile = message_factory.GetMessageClass(pool.FindMessageTypeByName("emm.test.Profile")).FromString(encoded)
    every = [profile, *profile.sample, *profile.mapping, *profile.location, *profile.function, *profile.sample_type]
    assert not any(len(unknown_fields.UnknownFieldSet(each)) for each in every)
    return profile


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def log(self, *rows):
        return self.file("log.csv", LOG_HEADER + "".join(rows))

    def output(self, *words, **options):
        done = emm(*words, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def refusal(self, *words, status=2, **options):
        """The sentence; nothing else is written, and no file is left."""
        before = sorted(self.folder.iterdir())
        done = emm(*words, **options)
        self.assertEqual((done.returncode, done.stdout), (status, b""), done.stderr)
        self.assertTrue(done.stderr.startswith(b"emm: "), done.stderr)
        self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)
        self.assertFalse(any(byte < 32 and byte != 10 for byte in done.stderr), done.stderr)
        self.assertEqual(sorted(self.folder.iterdir()), before)
        return done.stderr.decode()

    def rows(self, path, *words):
        text = self.output("import", path, *words).decode()
        self.assertTrue(text.startswith(HEADER))
        return text.splitlines()[1:]

    def logged_devices(self, path, *words):
        """The device of each event, in an event log made of the recording."""
        text = self.output("import", path, "--to", "event-log", *words).decode()
        return [line.split(",")[1] for line in text.splitlines()[1:]]
