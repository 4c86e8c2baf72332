#include "exchange/protobuf.h"

#include <array>

namespace emm::tool {
namespace {

constexpr uint32_t wire_varint = 0, wire_bytes = 2;

constexpr std::array<uint32_t, 256> crc_table = [] {
    std::array<uint32_t, 256> table = {};
    for (uint32_t i = 0; i < table.size(); i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++) {
            table[i] = table[i] >> 1 ^ (table[i] & 1) * 0xedb88320u;
        }
    }
    return table;
}();

uint32_t crc_of(std::string_view bytes) {
    uint32_t crc = ~uint32_t(0);
    for (const char byte : bytes) {
        crc = crc_table[(crc ^ static_cast<uint8_t>(byte)) & 0xff] ^ crc >> 8;
    }
    return ~crc;
}

// The lowest byte first.
std::string little_endian(uint64_t value, size_t size) {
    std::string bytes;
    for (size_t i = 0; i < size; i++) {
        bytes += static_cast<char>(value >> 8 * i & 0xff);
    }
    return bytes;
}

} // namespace

void ProtobufMessage::varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
        bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    }
    bytes_ += static_cast<char>(value);
}

void ProtobufMessage::block(uint32_t field, std::string_view bytes) {
    varint(uint64_t(field) << 3 | wire_bytes);
    varint(bytes.size());
    bytes_ += bytes;
}

void ProtobufMessage::number(uint32_t field, uint64_t value) {
    if (value != 0) {
        varint(uint64_t(field) << 3 | wire_varint);
        varint(value);
    }
}

void ProtobufMessage::text(uint32_t field, std::string_view value) {
    if (!value.empty()) {
        block(field, value);
    }
}

void ProtobufMessage::message(uint32_t field, const ProtobufMessage &value) {
    block(field, value.bytes_);
}

void ProtobufMessage::numbers(uint32_t field, const std::vector<uint64_t> &values) {
    ProtobufMessage packed;
    for (const uint64_t value : values) {
        packed.varint(value);
    }
    text(field, packed.bytes_);
}

void ProtobufMessage::all_texts(uint32_t field, const std::vector<std::string> &values) {
    for (const std::string &value : values) {
        block(field, value);
    }
}

// RFC 1951 and 1952: blocks of type 0 between a header and a trailer.
std::string as_gzip(std::string_view bytes) {
    constexpr size_t longest_block = 0xffff;
    const std::string trailer = little_endian(crc_of(bytes), 4) + little_endian(bytes.size(), 4);
    std::string file("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10);
    do {
        const std::string_view block = bytes.substr(0, longest_block);
        bytes.remove_prefix(block.size());
        file += bytes.empty() ? '\1' : '\0';
        file += little_endian(block.size(), 2) + little_endian(~block.size(), 2);
        file += block;
    } while (!bytes.empty());
    return file + trailer;
}

} // namespace emm::tool
