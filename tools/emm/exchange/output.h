#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace emm::tool {

// What a command writes: a file, or standard output for "". The file gets its name in finish(), in
// place of what had that name; before that, and without it, there is none. Throws Failure.
class Output {
public:
    // `input`: what is read meanwhile, or "". It is not written over.
    explicit Output(const std::string &path, const std::string &input = "");
    ~Output();
    Output(const Output &) = delete;
    Output &operator=(const Output &) = delete;

    void write(std::string_view bytes) {
        buffer_ += bytes;
        if (buffer_.size() >= full) {
            flush();
        }
    }
    void write(char byte) { write(std::string_view(&byte, 1)); }
    void finish();

private:
    static constexpr size_t full = 1 << 18;

    void open_file();
    void flush();
    void name_file();

    std::string path_;      // where the file goes
    std::string temporary_; // its name meanwhile, "" if it has none
    bool is_unnamed_ = false;
    int descriptor_;
    std::string buffer_;
};

} // namespace emm::tool
