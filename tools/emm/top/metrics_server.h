// GET /metrics, for Prometheus. A hundred lines and not cpp-httplib, whose threads a few clients
// that send slowly keep busy, and which brings OpenSSL and brotli into the tool: this has one
// thread, one page, and a limit for everything that a client can do.
#pragma once

#include <functional>
#include <string>

namespace emm::tool::top {

// "9400", ":9400", "localhost:9400", "[::1]:9400": the loopback address unless one is given.
struct Endpoint {
    std::string address, port;
};
bool read_endpoint(const std::string &text, Endpoint &ret_endpoint);

// Serves what `page` makes until the process ends; says on standard output where. Throws Failure if
// it cannot listen there.
[[noreturn]] void serve_metrics(const Endpoint &endpoint, const std::function<std::string()> &page);

} // namespace emm::tool::top
