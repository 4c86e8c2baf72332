#include "top/metrics_server.h"

#include "catch.h"

using namespace emm::tool::top;

namespace {

std::string endpoint_of(const std::string &text) {
    Endpoint endpoint;
    return read_endpoint(text, endpoint) ? endpoint.address + " " + endpoint.port : "refused";
}

} // namespace

TEST_CASE("an address to serve at is the loopback one unless it is given") {
    CHECK(endpoint_of("9400") == "127.0.0.1 9400");
    CHECK(endpoint_of(":9400") == "127.0.0.1 9400");
    CHECK(endpoint_of("0.0.0.0:0") == "0.0.0.0 0");
    CHECK(endpoint_of("localhost:80") == "localhost 80");
    CHECK(endpoint_of("[::1]:9400") == "::1 9400");
}

TEST_CASE("what is no address and port is refused") {
    for (const char *bad : {"", ":", "a", "a:", "1:65536", "1:-1", "1:80x", "::1:9400", "[]:1"}) {
        INFO(bad);
        CHECK(endpoint_of(bad) == "refused");
    }
}
