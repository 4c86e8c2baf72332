#include "top/http.h"

#include "catch.h"

using namespace emm::tool::top;

TEST_CASE("GET /metrics is what is served, and everything else has its own status") {
    CHECK(judge("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n") == Verdict::metrics);
    CHECK(judge("GET /metrics HTTP/1.0\r\n\r\n") == Verdict::metrics);
    CHECK(judge("GET /metrics?x=1 HTTP/1.1\r\n\r\n") == Verdict::metrics);
    CHECK(judge("HEAD /metrics HTTP/1.1\r\n\r\n") == Verdict::metrics_head);
    CHECK(judge("GET / HTTP/1.1\r\n\r\n") == Verdict::not_found);
    CHECK(judge("GET /metrics/../etc HTTP/1.1\r\n\r\n") == Verdict::not_found);
    CHECK(judge("POST /metrics HTTP/1.1\r\n\r\n") == Verdict::not_allowed);
    for (const char *bad : {"\r\n\r\n", "GET /metrics\r\n\r\n", "GET  /metrics HTTP/1.1\r\n\r\n",
                            "GET /metrics HTTP/2\r\n\r\n", " GET /metrics HTTP/1.1\r\n\r\n",
                            "GET /metrics HTTP/1.1 \r\n\r\n", "\x16\x03\x01\r\n\r\n"}) {
        CHECK(judge(bad) == Verdict::malformed);
    }
}

TEST_CASE("a request is judged once it is whole, and refused once it is too long") {
    CHECK(judge("") == Verdict::incomplete);
    CHECK(judge("GET /metrics HTTP/1.1\r\n") == Verdict::incomplete);
    CHECK(judge("GET /metrics HTTP/1.1\n\n") == Verdict::incomplete);
    CHECK(judge(std::string(longest_request, 'a')) == Verdict::incomplete);
    CHECK(judge(std::string(longest_request + 1, 'a')) == Verdict::too_long);
    CHECK(judge(std::string(longest_request + 1, 'a') + "\r\n\r\n") == Verdict::too_long);
}

TEST_CASE("a response says how long it is, and that the connection ends") {
    CHECK(response(Verdict::metrics, "a 1\n") ==
          "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
          "Content-Length: 4\r\nConnection: close\r\n\r\na 1\n");
    const std::string head = response(Verdict::metrics_head, "a 1\n");
    CHECK(head.find("Content-Length: 4\r\n") != std::string::npos);
    CHECK(head.substr(head.size() - 4) == "\r\n\r\n");
    CHECK(response(Verdict::not_allowed, "").find("405 Method Not Allowed\r\n") !=
          std::string::npos);
    CHECK(response(Verdict::not_allowed, "").find("\r\nAllow: GET, HEAD\r\n") != std::string::npos);
}
