#pragma once

#include <emm/emm.h>

#include <string>
#include <sys/types.h>

namespace faults {

// Another process, which opens what this one exports. Make it before this process has a driver.
class Importer {
public:
    static constexpr const char *silent = "no answer for 20 s";

    Importer();
    ~Importer();
    Importer(const Importer &) = delete;
    Importer &operator=(const Importer &) = delete;
    // "" or the importer's error. Takes no memory until there is an answer.
    std::string open(const emm_ipc_handle &handle);

private:
    int pipe_ = -1;
    pid_t process_ = 0;
};

} // namespace faults
