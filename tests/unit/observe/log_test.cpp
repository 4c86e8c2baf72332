#include "catch.h"

#include "observe/log.h"
#include "observe/log_setting.h"

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

using emm::observe::log;
using emm::observe::log_levels;

struct Lines {
    std::vector<std::pair<int32_t, std::string>> lines;
    static void take(int32_t level, const char *text, void *user_data) {
        static_cast<Lines *>(user_data)->lines.emplace_back(level, text);
    }
};

// Catches the text for standard error while this object lives.
class StandardError {
public:
    StandardError() : was_(dup(STDERR_FILENO)) {
        REQUIRE(pipe(ends_) == 0);
        dup2(ends_[1], STDERR_FILENO);
    }
    std::string end() {
        dup2(was_, STDERR_FILENO);
        close(ends_[1]);
        std::string all(65536, '\0');
        const ssize_t length = read(ends_[0], all.data(), all.size());
        all.resize(length > 0 ? static_cast<size_t>(length) : 0);
        return all;
    }

private:
    int was_;
    int ends_[2] = {-1, -1};
};

} // namespace

TEST_CASE("EMM_LOG outranks the application's level, and a callback replaces standard error") {
    const auto are = [](emm::observe::LogLevels levels, int32_t place, int32_t callback) {
        return levels.place == place && levels.callback == callback;
    };
    const std::optional<int32_t> none;
    CHECK(are(log_levels(none, EMM_LOG_WARN, none), EMM_LOG_WARN, EMM_LOG_OFF));
    CHECK(are(log_levels(none, EMM_LOG_DEBUG, none), EMM_LOG_DEBUG, EMM_LOG_OFF));
    CHECK(are(log_levels(none, EMM_LOG_WARN, EMM_LOG_INFO), EMM_LOG_OFF, EMM_LOG_INFO));
    CHECK(are(log_levels(EMM_LOG_OFF, EMM_LOG_DEBUG, none), EMM_LOG_OFF, EMM_LOG_OFF));
    CHECK(
        are(log_levels(EMM_LOG_DEBUG, EMM_LOG_WARN, EMM_LOG_ERROR), EMM_LOG_DEBUG, EMM_LOG_ERROR));
}

TEST_CASE("a log callback gets the lines of its level, and standard error gets none") {
    unsetenv("EMM_LOG");
    Lines taken;
    StandardError standard_error;
    REQUIRE(emm_set_log_callback(EMM_LOG_INFO, &Lines::take, &taken) == EMM_OK);
    log(EMM_LOG_DEBUG, "too much");
    log(EMM_LOG_INFO, "two\nlines, %s {} and \x1b[31m");
    log(EMM_LOG_ERROR, "bad");
    REQUIRE(emm_set_log_callback(EMM_LOG_OFF, nullptr, nullptr) == EMM_OK);
    log(EMM_LOG_WARN, "after it");
    const std::string said = standard_error.end();

    REQUIRE(taken.lines.size() == 2);
    CHECK(taken.lines[0] ==
          std::pair<int32_t, std::string>{EMM_LOG_INFO, "two lines, %s {} and ?[31m"});
    CHECK(taken.lines[1] == std::pair<int32_t, std::string>{EMM_LOG_ERROR, "bad"});
    CHECK(said.find("bad") == std::string::npos);
    CHECK(said.find("after it") != std::string::npos);
}

TEST_CASE("who sets EMM_LOG has the lines beside the callback") {
    setenv("EMM_LOG", "info", 1);
    Lines taken;
    StandardError standard_error;
    CHECK(emm_set_log_level(EMM_LOG_DEBUG) == EMM_S_IGNORED);
    REQUIRE(emm_set_log_callback(EMM_LOG_ERROR, &Lines::take, &taken) == EMM_OK);
    log(EMM_LOG_DEBUG, "too much");
    log(EMM_LOG_INFO, "for the user");
    log(EMM_LOG_ERROR, "for both");
    const std::string said = standard_error.end();
    CHECK(said.find("too much") == std::string::npos);
    CHECK(said.find("for the user") != std::string::npos);
    CHECK(said.find("for both") != std::string::npos);
    CHECK(taken.lines.size() == 1);
}

TEST_CASE("the application chooses what standard error gets") {
    unsetenv("EMM_LOG");
    StandardError standard_error;
    log(EMM_LOG_INFO, "before");
    CHECK(emm_set_log_level(EMM_LOG_INFO) == EMM_OK);
    log(EMM_LOG_INFO, "now");
    CHECK(emm_set_log_level(EMM_LOG_OFF) == EMM_OK);
    log(EMM_LOG_ERROR, "later");
    const std::string said = standard_error.end();
    CHECK(said.find("before") == std::string::npos);
    CHECK(said.find("now") != std::string::npos);
    CHECK(said.find("later") == std::string::npos);
}

TEST_CASE("a level that there is not is refused, and nothing changes") {
    Lines taken;
    REQUIRE(emm_set_log_callback(EMM_LOG_WARN, &Lines::take, &taken) == EMM_OK);
    for (const int32_t level : {-1, 5}) {
        CHECK(emm_set_log_callback(level, nullptr, nullptr) == EMM_E_INVALID_VALUE);
        CHECK(emm_set_log_level(level) == EMM_E_INVALID_VALUE);
        CHECK(std::string(emm_last_error()->text).find("expected EMM_LOG_OFF (0)") !=
              std::string::npos);
    }
    log(EMM_LOG_WARN, "still");
    CHECK(taken.lines.size() == 1);
}

TEST_CASE("a log callback and a level are told when they are replaced, and can be put back") {
    unsetenv("EMM_LOG");
    Lines first, second;
    emm_log_callback_info before = {}, replaced = {};
    REQUIRE(emm_exchange_log_callback(EMM_LOG_INFO, &Lines::take, &first, &before) == EMM_OK);
    CHECK((!before.callback && !before.user_data && before.level == EMM_LOG_OFF));
    REQUIRE(emm_exchange_log_callback(EMM_LOG_WARN, &Lines::take, &second, &replaced) == EMM_OK);
    CHECK((replaced.callback == &Lines::take && replaced.user_data == &first));
    CHECK(replaced.level == EMM_LOG_INFO);
    log(EMM_LOG_WARN, "to the second");
    REQUIRE(emm_exchange_log_callback(replaced.level, replaced.callback, replaced.user_data,
                                      nullptr) == EMM_OK);
    log(EMM_LOG_INFO, "to the first");
    CHECK(first.lines.size() == 1);
    CHECK(second.lines.size() == 1);
    REQUIRE(emm_exchange_log_callback(before.level, before.callback, before.user_data, &replaced) ==
            EMM_OK);
    CHECK(emm_exchange_log_callback(5, nullptr, nullptr, &replaced) == EMM_E_INVALID_VALUE);
    CHECK(replaced.user_data == &first);

    int32_t level = -1;
    CHECK(emm_exchange_log_level(EMM_LOG_DEBUG, &level) == EMM_OK);
    CHECK(level == EMM_LOG_WARN);
    CHECK(emm_exchange_log_level(level, &level) == EMM_OK);
    CHECK(level == EMM_LOG_DEBUG);
}

TEST_CASE("an application writes to the log, and what is no line or level is refused") {
    Lines taken;
    REQUIRE(emm_set_log_callback(EMM_LOG_DEBUG, &Lines::take, &taken) == EMM_OK);
    CHECK(emm_log(EMM_LOG_DEBUG, "a line") == EMM_OK);
    CHECK(emm_log(EMM_LOG_OFF, "none") == EMM_E_INVALID_VALUE);
    CHECK(emm_log(EMM_LOG_DEBUG + 1, "none") == EMM_E_INVALID_VALUE);
    CHECK(emm_log(EMM_LOG_DEBUG, nullptr) == EMM_E_INVALID_VALUE);
    CHECK(taken.lines == std::vector<std::pair<int32_t, std::string>>{{EMM_LOG_DEBUG, "a line"}});
}

TEST_CASE("a table goes line by line to a callback that stands for standard error") {
    unsetenv("EMM_LOG");
    Lines taken;
    REQUIRE(emm_set_log_callback(EMM_LOG_ERROR, &Lines::take, &taken) == EMM_OK);
    emm::observe::report("one\ntwo");
    CHECK(taken.lines == std::vector<std::pair<int32_t, std::string>>{{EMM_LOG_INFO, "one"},
                                                                      {EMM_LOG_INFO, "two"}});
}

TEST_CASE("what comes up in a log callback is not given to it, and it cannot replace itself") {
    static std::atomic<int> calls;
    static std::atomic<emm_status> answered;
    calls = 0;
    answered = EMM_OK;
    const emm_log_callback within = [](int32_t, const char *, void *) {
        ++calls;
        log(EMM_LOG_ERROR, "from within");
        answered = emm_set_log_callback(EMM_LOG_OFF, nullptr, nullptr);
    };
    REQUIRE(emm_set_log_callback(EMM_LOG_WARN, within, nullptr) == EMM_OK);
    log(EMM_LOG_WARN, "once");
    CHECK(calls == 1);
    CHECK(answered == EMM_E_REENTERED);
}

TEST_CASE("a log callback that was removed is not called any more by any thread") {
    static std::atomic<bool> there;
    static std::atomic<int> late;
    late = 0;
    std::atomic<bool> stop{false};
    std::thread other([&] {
        while (!stop) {
            log(EMM_LOG_ERROR, "again");
        }
    });
    StandardError standard_error;
    for (int round = 0; round < 200; ++round) {
        there = true;
        emm_set_log_callback(
            EMM_LOG_ERROR, [](int32_t, const char *, void *) { late += there ? 0 : 1; }, nullptr);
        emm_set_log_level(EMM_LOG_OFF);
        emm_set_log_callback(EMM_LOG_OFF, nullptr, nullptr);
        there = false;
    }
    stop = true;
    other.join();
    standard_error.end();
    CHECK(late == 0);
}
