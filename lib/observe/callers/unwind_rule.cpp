#include "observe/callers/unwind_rule.h"

#include <cstring>

// From libgcc: takes no lock if glibc has _dl_find_object (2.35).
struct dwarf_eh_bases {
    void *tbase, *dbase, *func;
};
extern "C" const void *_Unwind_Find_FDE(void *place, dwarf_eh_bases *ret_bases);

namespace emm::observe {
namespace {

#if defined(__x86_64__)
constexpr uint64_t frame_pointer = 6, stack_pointer = 7, return_column = 16;
#else
constexpr uint64_t frame_pointer = 29, stack_pointer = 31, return_column = 30;
#endif

constexpr uint8_t op_deref = 0x06, op_breg0 = 0x70; // of DWARF expressions

// Bytes of the call frame information, from front to back.
class Reader {
public:
    Reader(const uint8_t *at, const uint8_t *end) : at_(at), end_(end) {}
    bool has_more() const { return at_ < end_; }
    const uint8_t *at() const { return at_; }
    template <class Number> Number take() {
        Number number = 0;
        if (size_t(end_ - at_) < sizeof number) {
            at_ = end_;
            return 0;
        }
        std::memcpy(&number, at_, sizeof number);
        at_ += sizeof number;
        return number;
    }
    uint64_t take_unsigned() { // LEB128
        uint64_t number = 0;
        unsigned shift = 0;
        for (uint8_t byte = 0x80; (byte & 0x80) != 0 && has_more(); shift += 7) {
            byte = take<uint8_t>();
            number |= shift < 64 ? uint64_t(byte & 0x7f) << shift : 0;
        }
        return number;
    }
    int64_t take_signed() {
        uint64_t number = 0;
        unsigned shift = 0;
        uint8_t byte = 0x80;
        while ((byte & 0x80) != 0 && has_more()) {
            byte = take<uint8_t>();
            number |= shift < 64 ? uint64_t(byte & 0x7f) << shift : 0;
            shift += 7;
        }
        return static_cast<int64_t>(
            (byte & 0x40) != 0 && shift < 64 ? number | ~uint64_t(0) << shift : number);
    }
    Reader take_block() {
        const uint64_t size = take_unsigned();
        return take_bytes(size);
    }
    Reader take_bytes(uint64_t size) {
        const uint8_t *const begin = at_;
        at_ += size <= size_t(end_ - at_) ? size : size_t(end_ - at_);
        return {begin, at_};
    }

private:
    const uint8_t *at_, *end_;
};

// The place where the caller's value of a register is.
struct Saved {
    enum { same, at_cfa, at_register, undefined, elsewhere } where = same;
    int64_t offset = 0; // at_register: from the frame pointer, at_cfa: from the CFA
};

struct Row {
    enum { by_register, by_memory, otherwise } cfa = otherwise;
    uint64_t base = 0; // register
    int64_t offset = 0;
    Saved fp, ra;
};

// `BREG(frame pointer) offset`, optionally followed by a dereference.
bool is_from_fp(Reader expression, bool dereferenced, int64_t &ret_offset) {
    if (expression.take<uint8_t>() != op_breg0 + frame_pointer) {
        return false;
    }
    ret_offset = expression.take_signed();
    return dereferenced ? expression.take<uint8_t>() == op_deref && !expression.has_more()
                        : !expression.has_more();
}

// The table of rows that the instructions describe, up to the row for one place.
class Program {
public:
    Program(uint64_t code_unit, int64_t data_unit, uint64_t bytes_to_place)
        : code_unit_(code_unit), data_unit_(data_unit), left_(bytes_to_place) {}

    // False: unknown instruction.
    bool run(Reader instructions) {
        while (instructions.has_more() && !arrived_) {
            const uint8_t byte = instructions.take<uint8_t>();
            const uint8_t low = byte & 0x3f;
            const bool known = (byte & 0xc0) == 0 ? extended(low, instructions)
                                                  : primary(byte & 0xc0, low, instructions);
            if (!known) {
                return false;
            }
        }
        return true;
    }
    void begin_function() { initial_ = row; }
    Row row;

private:
    bool primary(uint8_t operation, uint8_t low, Reader &from) {
        switch (operation) {
        case 0x40:
            advance(low);
            break;
        case 0x80:
            save(low, {Saved::at_cfa, int64_t(from.take_unsigned()) * data_unit_});
            break;
        default:
            restore(low);
        }
        return true;
    }
    bool extended(uint8_t operation, Reader &from);
    void advance(uint64_t units) {
        const uint64_t bytes = units * code_unit_;
        arrived_ = bytes > left_;
        left_ -= arrived_ ? 0 : bytes;
    }
    void save(uint64_t number, Saved saved) {
        if (number == frame_pointer) {
            row.fp = saved;
        } else if (number == return_column) {
            row.ra = saved;
        }
    }
    void restore(uint64_t number) {
        save(number, number == frame_pointer ? initial_.fp : initial_.ra);
    }
    void define_cfa(uint64_t base, int64_t offset) {
        row.cfa = Row::by_register;
        row.base = base;
        row.offset = offset;
    }
    void define_cfa(Reader expression) {
        row.cfa = is_from_fp(expression, true, row.offset) ? Row::by_memory : Row::otherwise;
    }
    bool remember() {
        if (depth_ == sizeof rows_ / sizeof *rows_) {
            return false;
        }
        rows_[depth_++] = row;
        return true;
    }
    bool recall() {
        if (depth_ == 0) {
            return false;
        }
        row = rows_[--depth_];
        return true;
    }

    const uint64_t code_unit_;
    const int64_t data_unit_;
    uint64_t left_;
    bool arrived_ = false;
    Row initial_, rows_[8];
    size_t depth_ = 0;
};

// The DW_CFA_* instructions without an operand in their byte.
bool Program::extended(uint8_t operation, Reader &from) {
    uint64_t number = 0;
    switch (operation) {
    case 0x00: // nop
        return true;
    case 0x02: // advance_loc1, 2, 4
        advance(from.take<uint8_t>());
        return true;
    case 0x03:
        advance(from.take<uint16_t>());
        return true;
    case 0x04:
        advance(from.take<uint32_t>());
        return true;
    case 0x05: // offset_extended
        number = from.take_unsigned();
        save(number, {Saved::at_cfa, int64_t(from.take_unsigned()) * data_unit_});
        return true;
    case 0x06: // restore_extended
        restore(from.take_unsigned());
        return true;
    case 0x07: // undefined
        save(from.take_unsigned(), {Saved::undefined, 0});
        return true;
    case 0x08: // same_value
        save(from.take_unsigned(), {Saved::same, 0});
        return true;
    case 0x09: // register
        save(from.take_unsigned(), {Saved::elsewhere, 0});
        from.take_unsigned();
        return true;
    case 0x0a:
        return remember();
    case 0x0b:
        return recall();
    case 0x0c: // def_cfa
        number = from.take_unsigned();
        define_cfa(number, int64_t(from.take_unsigned()));
        return true;
    case 0x0d: // def_cfa_register
        row.base = from.take_unsigned();
        return true;
    case 0x0e: // def_cfa_offset
        row.offset = int64_t(from.take_unsigned());
        return true;
    case 0x0f: // def_cfa_expression
        define_cfa(from.take_block());
        return true;
    case 0x10: { // expression
        number = from.take_unsigned();
        Saved saved = {Saved::elsewhere, 0};
        if (is_from_fp(from.take_block(), false, saved.offset)) {
            saved.where = Saved::at_register;
        }
        save(number, saved);
        return true;
    }
    case 0x11: // offset_extended_sf
        number = from.take_unsigned();
        save(number, {Saved::at_cfa, from.take_signed() * data_unit_});
        return true;
    case 0x12: // def_cfa_sf
        number = from.take_unsigned();
        define_cfa(number, from.take_signed() * data_unit_);
        return true;
    case 0x13: // def_cfa_offset_sf
        row.offset = from.take_signed() * data_unit_;
        return true;
    case 0x16: // val_expression
        save(from.take_unsigned(), {Saved::elsewhere, 0});
        from.take_block();
        return true;
    // AARCH64_negate_ra_state: the return address is signed; unsign() removes the signature.
    case 0x2d:
        return true;
    case 0x2e: // GNU_args_size
        from.take_unsigned();
        return true;
    default:
        return false;
    }
}

size_t size_of_encoding(uint8_t encoding) {
    switch (encoding & 0x0f) {
    case 0x00: // absptr
    case 0x04: // udata8
    case 0x0c: // sdata8
        return 8;
    case 0x03: // udata4
    case 0x0b: // sdata4
        return 4;
    case 0x02: // udata2
    case 0x0a: // sdata2
        return 2;
    default:
        return 0;
    }
}

// The part that many functions share (CIE).
struct Common {
    uint64_t code_unit = 1;
    int64_t data_unit = -8;
    size_t address_size = 8;
    bool has_augmentation = false, is_signal_frame = false;
    Reader instructions = {nullptr, nullptr};
};

// The body of an entry, without its length; empty for the end mark and for the 64-bit form.
Reader body_of(const uint8_t *entry) {
    uint32_t length = 0;
    std::memcpy(&length, entry, sizeof length);
    return length == 0xffffffff ? Reader(entry, entry)
                                : Reader(entry + sizeof length, entry + sizeof length + length);
}

bool read_augmentation(Reader &from, const char *letters, Common &common) {
    Reader data = from.take_block();
    common.has_augmentation = true;
    for (const char *letter = letters + 1; *letter; letter++) {
        if (*letter == 'R') {
            common.address_size = size_of_encoding(data.take<uint8_t>());
        } else if (*letter == 'P') {
            const size_t size = size_of_encoding(data.take<uint8_t>());
            data.take_bytes(size);
        } else if (*letter == 'L') {
            data.take<uint8_t>();
        } else if (*letter == 'S') {
            common.is_signal_frame = true;
        } else if (*letter != 'B') {
            return false;
        }
    }
    return common.address_size != 0;
}

bool read_common(const uint8_t *entry, Common &ret_common) {
    Reader from = body_of(entry);
    from.take<uint32_t>(); // 0: a CIE
    const uint8_t version = from.take<uint8_t>();
    const char *const letters = reinterpret_cast<const char *>(from.at());
    from.take_bytes(std::strlen(letters) + 1);
    ret_common.code_unit = from.take_unsigned();
    ret_common.data_unit = from.take_signed();
    const uint64_t column = version == 1 ? from.take<uint8_t>() : from.take_unsigned();
    if ((version != 1 && version != 3) || column != return_column ||
        (*letters && *letters != 'z')) {
        return false;
    }
    if (*letters && !read_augmentation(from, letters, ret_common)) {
        return false;
    }
    ret_common.instructions = from;
    return true;
}

bool fits(int64_t offset) {
    return offset % 8 == 0 && offset >= INT32_MIN && offset <= INT32_MAX;
}

// On aarch64 a function that has saved nothing yet gets no rule, because it is never a caller at
// that place.
bool take_saves(const Row &row, UnwindRule &rule) {
    const bool in_memory = row.cfa == Row::by_memory;
    const Saved &fp = row.fp;
#if defined(__x86_64__)
    rule.saves_fp = fp.where != Saved::same;
    rule.save_offset = fp.where == Saved::at_cfa ? int32_t(fp.offset) : 0;
    return row.ra.where == Saved::at_cfa && row.ra.offset == -8 && fits(fp.offset) &&
           (fp.where == Saved::same || (fp.where == Saved::at_cfa && !in_memory) ||
            (fp.where == Saved::at_register && fp.offset == 0 && in_memory));
#else
    rule.saves_fp = fp.where != Saved::same;
    rule.save_offset = int32_t(row.ra.offset);
    return !in_memory && row.ra.where == Saved::at_cfa && fits(row.ra.offset) &&
           (fp.where == Saved::same ||
            (fp.where == Saved::at_cfa && fp.offset == row.ra.offset - 8));
#endif
}

UnwindRule rule_of(const Row &row) {
    UnwindRule rule;
    const bool by_known =
        row.cfa == Row::by_memory ||
        (row.cfa == Row::by_register && (row.base == stack_pointer || row.base == frame_pointer));
    if (!by_known || !fits(row.offset) || !take_saves(row, rule)) {
        return {};
    }
    rule.cfa = row.cfa == Row::by_memory   ? UnwindRule::Cfa::at_fp
               : row.base == stack_pointer ? UnwindRule::Cfa::from_sp
                                           : UnwindRule::Cfa::from_fp;
    rule.cfa_offset = int32_t(row.offset);
    return rule;
}

// In units of 8 bytes: 14 bits, with the sign.
constexpr int32_t most_units = 8191;
bool is_packable(int32_t bytes) {
    return bytes / 8 <= most_units && bytes / 8 >= -most_units;
}
uint32_t units(int32_t bytes) {
    return static_cast<uint32_t>(bytes / 8) & 0x3fff;
}
int32_t bytes_of(uint32_t units) {
    return (static_cast<int32_t>(units << 18) >> 18) * 8;
}

} // namespace

UnwindRule rule_from_entry(const uint8_t *entry, uintptr_t function, uintptr_t place) noexcept {
    Reader from = body_of(entry);
    const uint8_t *const at = from.at();
    const uint32_t distance = from.take<uint32_t>();
    Common common;
    if (distance == 0 || !read_common(at - distance, common) || common.is_signal_frame) {
        return {};
    }
    from.take_bytes(2 * common.address_size); // the function's begin and length
    if (common.has_augmentation) {
        from.take_block();
    }
    // The common instructions apply to the function's beginning, for every place.
    Program program(common.code_unit, common.data_unit, place - function);
    if (!program.run(common.instructions)) {
        return {};
    }
    program.begin_function();
    return program.run(from) ? rule_of(program.row) : UnwindRule();
}

UnwindRule rule_at(uintptr_t place) noexcept {
    dwarf_eh_bases bases = {};
    const void *const entry = _Unwind_Find_FDE(reinterpret_cast<void *>(place), &bases);
    return entry ? rule_from_entry(static_cast<const uint8_t *>(entry),
                                   reinterpret_cast<uintptr_t>(bases.func), place)
                 : UnwindRule();
}

uint32_t packed(const UnwindRule &rule) noexcept {
    const bool fits_in = is_packable(rule.cfa_offset) && is_packable(rule.save_offset);
    const auto cfa = fits_in ? rule.cfa : UnwindRule::Cfa::none;
    if (cfa == UnwindRule::Cfa::none) {
        return static_cast<uint32_t>(cfa);
    }
    return static_cast<uint32_t>(cfa) | uint32_t(rule.saves_fp) << 2 | units(rule.cfa_offset) << 3 |
           units(rule.save_offset) << 17;
}

UnwindRule unpacked(uint32_t bits) noexcept {
    UnwindRule rule;
    rule.cfa = static_cast<UnwindRule::Cfa>(bits & 3);
    if (rule.cfa == UnwindRule::Cfa::none) {
        return rule;
    }
    rule.saves_fp = (bits & 4) != 0;
    rule.cfa_offset = bytes_of(bits >> 3 & 0x3fff);
    rule.save_offset = bytes_of(bits >> 17 & 0x3fff);
    return rule;
}

} // namespace emm::observe
