"""The file that ring.py and its members map. ring_member.cpp has the same layout."""
import ctypes
import mmap

DOING = ("starting", "resting", "allocating", "freeing", "checking", "exporting", "verifying", "opening", "reading",
         "answering", "closing", "waiting", "ending")
COUNTS = ("allocated", "freed", "refused", "checked", "offered", "ring_reads", "reads_of_dead", "answers", "late_opens", "looks")
NUMBER = ctypes.c_uint64


class Slot(ctypes.Structure):
    _fields_ = [*((name, NUMBER) for name in ("incarnation", "counting", "beats", "doing", "live", "version", "device_bytes",
                                              "census", "offer", "offer_size", "offer_value")),
                ("handle", ctypes.c_char * 64),
                *((name, NUMBER) for name in ("held_incarnation", "held_offer", "answered_incarnation", "answered_offer")),
                ("count", NUMBER * len(COUNTS)), ("wrong", ctypes.c_char * 256)]

    def doing_name(self):
        return DOING[self.doing]


class Head(ctypes.Structure):
    _fields_ = [(name, NUMBER) for name in ("census", "released", "lean", "over")]


class Board:
    def __init__(self, path, slots):
        size = ctypes.sizeof(Head) + slots * ctypes.sizeof(Slot)
        with open(path, "w+b") as file:
            file.truncate(size)
            self.memory = mmap.mmap(file.fileno(), size)
        self.head = Head.from_buffer(self.memory)
        self.slots = (Slot * slots).from_buffer(self.memory, ctypes.sizeof(Head))

    def clear(self, number):
        """No member has the slot. Its number goes first: what it held is free then."""
        self.slots[number].incarnation = 0
        ctypes.memset(ctypes.byref(self.slots[number]), 0, ctypes.sizeof(Slot))
