#include "exchange/opcodes.h"

namespace emm::tool::opcode {
namespace {

struct Named {
    uint8_t code;
    const char *name;
};

// Those that snapshots do not have.
constexpr Named others[] = {{'0', "POP"},
                            {'1', "POP_MARK"},
                            {'2', "DUP"},
                            {'F', "FLOAT"},
                            {'I', "INT"},
                            {'L', "LONG"},
                            {'S', "STRING"},
                            {'T', "BINSTRING"},
                            {'U', "SHORT_BINSTRING"},
                            {'V', "UNICODE"},
                            {'B', "BINBYTES"},
                            {'C', "SHORT_BINBYTES"},
                            {'P', "PERSID"},
                            {'Q', "BINPERSID"},
                            {'R', "REDUCE"},
                            {'b', "BUILD"},
                            {'c', "GLOBAL"},
                            {'d', "DICT"},
                            {'g', "GET"},
                            {'i', "INST"},
                            {'l', "LIST"},
                            {'o', "OBJ"},
                            {'p', "PUT"},
                            {0x81, "NEWOBJ"},
                            {0x82, "EXT1"},
                            {0x83, "EXT2"},
                            {0x84, "EXT4"},
                            {0x8b, "LONG4"},
                            {0x8e, "BINBYTES8"},
                            {0x8f, "EMPTY_SET"},
                            {0x90, "ADDITEMS"},
                            {0x91, "FROZENSET"},
                            {0x92, "NEWOBJ_EX"},
                            {0x93, "STACK_GLOBAL"},
                            {0x96, "BYTEARRAY8"},
                            {0x97, "NEXT_BUFFER"},
                            {0x98, "READONLY_BUFFER"}};

} // namespace

const char *name_of(uint8_t code) {
    for (const Named &other : others) {
        if (other.code == code) {
            return other.name;
        }
    }
    return nullptr;
}

} // namespace emm::tool::opcode
