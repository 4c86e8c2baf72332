#include "../../core/driver_calls.h"
#include "../../core/recorder.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <pthread.h>
#include <thread>
#include <unistd.h>

namespace {

// Where the log goes that the context of device 0 has from now on.
class LogOfEvents {
public:
    LogOfEvents() { setenv("EMM_EVENT_LOG", path_.c_str(), 1); }
    ~LogOfEvents() { std::filesystem::remove(path_); }
    std::string text() const {
        std::ifstream file(path_);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    bool has_spool() const { return std::filesystem::exists(path_ + ".spool"); }

private:
    const std::string path_ = "/tmp/emm-events-" + std::to_string(getpid());
};

} // namespace

TEST_CASE("events are in the log soon, not only at the end") {
    const LogOfEvents log;
    emm_context *context = recorded_context();
    emm_deviceptr ptr = 0;
    REQUIRE(emm_memalloc(context, 4096, EMM_STREAM_LEGACY, &ptr) == EMM_OK);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (log.text().find(",4096,") == std::string::npos &&
           std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    CHECK_THAT(log.text(), ContainsSubstring(",4096,"));
}

TEST_CASE("without a thread-specific key no events are recorded, and no spool is left") {
    static std::string said;
    const LogOfEvents log;
    new_context(); // the driver may want a key
    for (pthread_key_t key; pthread_key_create(&key, nullptr) == 0;) {
    }
    const auto take = [](int32_t, const char *line, void *) { said += line; };
    REQUIRE(emm_set_log_callback(EMM_LOG_WARN, take, nullptr) == EMM_OK);
    emm_context *context = recorded_context();
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(context, 4096, EMM_STREAM_LEGACY, &ptr) == EMM_OK);
    CHECK_THAT(said, ContainsSubstring("EMM_EVENT_LOG: no thread-specific key is left; events are "
                                       "not recorded"));
    CHECK_FALSE(log.has_spool());
}
