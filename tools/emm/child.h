#pragma once

#include "json.h"

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <sys/types.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace emm::tool {

// JSON objects, over a pair of descriptors. A timeout is in seconds.
class Channel {
public:
    Channel(int in, int out) : in_(in), out_(out) {}
    ~Channel();
    Channel(const Channel &) = delete;
    Channel &operator=(const Channel &) = delete;

    // False if the reader has gone.
    bool send(const Json &message);

    // The message {"inside": `what`}, from a signal handler.
    static void send_inside(int out, const char *what) noexcept;

    enum class End { none, closed, timeout };
    // Nothing at the end of the conversation, and `ret_end` says why.
    std::optional<Json> receive(double timeout, End &ret_end);

    void close_out();
    int out() const { return out_; }

private:
    std::optional<Json> take_message();

    int in_, out_;
    std::string buffer_;
};

// Changes to the environment: a name and its value, or none to remove it.
using Changes = std::vector<std::pair<std::string, std::optional<std::string>>>;

// EMM_SIM as it is, plus those of `settings` ("key=value") whose keys it does not have yet.
std::string simulator_settings(const std::vector<std::string> &settings);
void add_settings(std::string &text, const std::string &settings); // separated by commas

// The stage of a Failure about a child process that ended, or that was stopped.
constexpr const char *process_stage = "run";

// The longest silence of a process, and the destination of its standard error.
struct ChildSettings {
    double time_limit = 120; // seconds without an answer
    int errors = STDERR_FILENO;
};

// A child process that runs this program again: each plugin has a fresh libemm and driver, and a
// crash ends only that process.
class Child {
public:
    // `plugin` is its name in messages, and in its command line, behind the name of the job.
    Child(std::string plugin, const Json &job, const Changes &changes,
          const ChildSettings &settings = {});
    ~Child();
    Child(const Child &) = delete;
    Child &operator=(const Child &) = delete;

    void send(const Json &message) { channel_->send(message); }

    // The next answer. Progress is reported on the way. Throws Failure if the child reports a
    // failure, ends without an answer, or is silent for too long.
    using Report = std::function<void(double share)>;
    Json receive(const Report &report = {});

    // Lets the child end: "" if its status is 0, else the way it ended.
    std::string finish();

    const std::string &plugin() const { return plugin_; }

private:
    std::string how_it_ended();

    std::string plugin_;
    double time_limit_;
    std::string inside_; // told by a crash
    pid_t process_ = -1;
    std::unique_ptr<Channel> channel_;
};

// The other side, within a child process. Standard output becomes standard error, because a plugin
// may print.
class Parent {
public:
    Parent();
    Json receive(); // an object {"end": true} when the parent has gone or wants no more
    void send(const Json &message);
    void progress(double share); // restarts the parent's time limit
    // Where a crash may say {"inside": TEXT}: the parent's message about the end has the text.
    int descriptor() const { return channel_->out(); }

private:
    std::mutex mutex_; // guards the channel
    std::unique_ptr<Channel> channel_;
};

// A child starts with this word first on its command line, and its job on standard input.
constexpr const char *child_argument = "--child";
int run_child();

} // namespace emm::tool
