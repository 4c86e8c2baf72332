#include "exchange/opcodes.h"

namespace emm::tool::opcode {
namespace {

// Those that snapshots do not have.
constexpr Other others[] = {{'0', "POP", false},
                            {'1', "POP_MARK", false},
                            {'2', "DUP", false},
                            {'F', "FLOAT", false},
                            {'I', "INT", false},
                            {'L', "LONG", false},
                            {'S', "STRING", false},
                            {'T', "BINSTRING", false},
                            {'U', "SHORT_BINSTRING", false},
                            {'V', "UNICODE", false},
                            {'P', "PERSID", true},
                            {'Q', "BINPERSID", true},
                            {'R', "REDUCE", true},
                            {'b', "BUILD", true},
                            {'c', "GLOBAL", true},
                            {'d', "DICT", false},
                            {'g', "GET", false},
                            {'i', "INST", true},
                            {'l', "LIST", false},
                            {'o', "OBJ", true},
                            {'p', "PUT", false},
                            {0x81, "NEWOBJ", true},
                            {0x82, "EXT1", true},
                            {0x83, "EXT2", true},
                            {0x84, "EXT4", true},
                            {0x92, "NEWOBJ_EX", true},
                            {0x93, "STACK_GLOBAL", true},
                            {0x97, "NEXT_BUFFER", true},
                            {0x98, "READONLY_BUFFER", true}};

} // namespace

const Other *find_other(uint8_t code) {
    for (const Other &other : others) {
        if (other.code == code) {
            return &other;
        }
    }
    return nullptr;
}

} // namespace emm::tool::opcode
