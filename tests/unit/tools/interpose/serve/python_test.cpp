#include "serve/python.h"

#include "catch.h"

#include <cstring>

using namespace emm::run;

namespace {

int initialized_answer, held_answer;

int initialized() {
    return initialized_answer;
}

int held() {
    return held_answer;
}

void any() {}

void *find_all(const char *name) {
    const auto address = [](auto function) { return reinterpret_cast<void *>(function); };
    return std::strcmp(name, "Py_IsInitialized") == 0   ? address(&initialized)
           : std::strcmp(name, "PyGILState_Check") == 0 ? address(&held)
                                                        : address(&any);
}

void *find_none(const char *) {
    return nullptr;
}

// As in Python 2.
void *find_old(const char *name) {
    return std::strcmp(name, "PyGILState_Check") == 0 ? nullptr : find_all(name);
}

} // namespace

TEST_CASE("an interpreter is found if it has every function that is called") {
    Python python = {};
    CHECK(find_python(&find_all, python));
    CHECK_FALSE(find_python(&find_none, python));
    CHECK_FALSE(find_python(&find_old, python));
}

TEST_CASE("an interpreter is free for a thread that does not hold its lock") {
    Python python = {};
    REQUIRE(find_python(&find_all, python));
    initialized_answer = 1;
    held_answer = 0;
    CHECK(python.is_free());
    held_answer = 1;
    CHECK_FALSE(python.is_free());
    initialized_answer = held_answer = 0;
    CHECK_FALSE(python.is_free());
}
