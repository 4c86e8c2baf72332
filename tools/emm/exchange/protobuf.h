#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace emm::tool {

// A message in the encoding of Protocol Buffers: varints and bytes, each behind the number of its
// field. A profile needs only these. The code is written by hand, because libprotobuf would be the
// tool's largest library by far, with a compiler that the build needs and an ABI that changes with
// each release. Values that are 0 or empty are left out, as in proto3.
class ProtobufMessage {
public:
    void number(uint32_t field, uint64_t value);
    void text(uint32_t field, std::string_view value);
    void message(uint32_t field, const ProtobufMessage &value);             // also an empty one
    void numbers(uint32_t field, const std::vector<uint64_t> &values);      // packed
    void all_texts(uint32_t field, const std::vector<std::string> &values); // empty ones, too

    const std::string &bytes() const { return bytes_; }

private:
    void varint(uint64_t value);
    void block(uint32_t field, std::string_view bytes);

    std::string bytes_;
};

// `bytes` as a gzip file, stored and not compressed, which readers of the format accept.
std::string as_gzip(std::string_view bytes);

} // namespace emm::tool
