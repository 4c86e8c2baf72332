#pragma once

#include "exchange/output.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace emm::tool {

// Writes a pickle of dictionaries, lists, texts and whole numbers, protocol 4: what Python's pickle
// module and the viewer at pytorch.org/memory_viz read.
class PickleWriter {
public:
    explicit PickleWriter(Output &output);

    void open_dictionary();
    void close_dictionary();
    void open_list();
    // Between the items of a long list: a reader need not hold more than these at a time.
    void next_part();
    void close_list();

    // A text that comes again, as a key does: it is written once.
    void word(std::string_view text);
    // Any other, of which what is not UTF-8 is replaced.
    void text(std::string_view text);
    void number(uint64_t value);
    void signed_number(int64_t value);
    void boolean(bool value);

    // Keeps the value that was written last, and answers its number.
    uint32_t keep();
    void again(uint32_t number);

    void finish();

private:
    void little_endian(uint64_t value, size_t bytes);

    Output &output_;
    uint32_t kept_ = 0;
    std::unordered_map<std::string_view, uint32_t> words_; // literals
};

} // namespace emm::tool
