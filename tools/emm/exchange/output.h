#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace emm::tool {

// The output of a command: a file, or standard output for "". Until finish(), the file has no name;
// finish() gives it its name and replaces any file of that name. Throws Failure.
class Output {
public:
    // `inputs`: files that are read meanwhile. They are not overwritten.
    explicit Output(const std::string &path, std::initializer_list<std::string> inputs = {});
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
