// Asks many processes at a time for their figures, with a bounded wait for each.
#pragma once

#include "monitor/protocol.h"
#include "top/process.h"

#include <map>

namespace emm::tool::top {

class Inquiry {
public:
    Inquiry();
    ~Inquiry();
    Inquiry(const Inquiry &) = delete;
    Inquiry &operator=(const Inquiry &) = delete;

    // Every process of this user that can be asked. A process that does not answer in time gets a
    // problem that says so, and the next call waits for its answer instead of asking again. Throws
    // Failure if /proc does not tell.
    std::vector<Process> ask_all();

    // The answer of one process, or its problem; `rest` follows the request. Throws Failure, about
    // `subject`, if no process of this user that uses emm has that id.
    Process ask(int64_t pid, monitor::RequestKind kind, const std::string &subject,
                const std::string &rest = "");

    // All of them at once, by their sockets; waits for their answers.
    void ask_to_trim(const std::vector<Name> &names);

private:
    struct Asked {
        int socket = -1;
        int64_t since = 0;
        Process process;
        bool is_settled = false;
    };
    bool connect_to(const Name &name, Asked &asked);
    void begin(const Name &name, monitor::RequestKind kind, const std::string &rest = "");
    void wait_for_all(const std::vector<Name> &names, int64_t timeout);
    void receive(Asked &asked);
    void close(Asked &asked);
    void forget_all_but(const std::vector<Name> &names);
    std::vector<Asked *> unsettled(const std::vector<Name> &names);
    void ask_some(const std::vector<Name> &names, std::vector<Process> &ret_processes);
    void take(const Name &name, std::vector<Process> &ret_processes);

    std::map<std::string, Asked> asked_; // by the socket's name
    std::string room_;                   // for one message
};

} // namespace emm::tool::top
