#include "top/http.h"

#include "top/prometheus.h"

#include <fmt/format.h>

namespace emm::tool::top {
namespace {

struct Status {
    const char *line, *text;
};

Status status_of(Verdict verdict) {
    switch (verdict) {
    case Verdict::not_found:
        return {"404 Not Found", "expected /metrics\n"};
    case Verdict::not_allowed:
        return {"405 Method Not Allowed", "expected GET\n"};
    case Verdict::too_long:
        return {"431 Request Header Fields Too Large", "expected at most 8192 bytes\n"};
    case Verdict::malformed:
        return {"400 Bad Request", "expected GET /metrics HTTP/1.1\n"};
    default:
        return {"200 OK", ""};
    }
}

std::string_view take_word(std::string_view &line) {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(word.size() == line.size() ? word.size() : word.size() + 1);
    return word;
}

Verdict judge_line(std::string_view line) {
    const std::string_view method = take_word(line);
    const std::string_view target = take_word(line);
    if (method.empty() || target.empty() || (line != "HTTP/1.1" && line != "HTTP/1.0")) {
        return Verdict::malformed;
    }
    if (method != "GET" && method != "HEAD") {
        return Verdict::not_allowed;
    }
    if (target.substr(0, target.find('?')) != "/metrics") {
        return Verdict::not_found;
    }
    return method == "GET" ? Verdict::metrics : Verdict::metrics_head;
}

} // namespace

Verdict judge(std::string_view received) {
    const size_t end = received.find("\r\n\r\n");
    if (end == std::string_view::npos || end > longest_request) {
        return received.size() > longest_request ? Verdict::too_long : Verdict::incomplete;
    }
    return judge_line(received.substr(0, received.find("\r\n")));
}

std::string response(Verdict verdict, std::string_view body) {
    const Status status = status_of(verdict);
    const bool is_good = verdict == Verdict::metrics || verdict == Verdict::metrics_head;
    const std::string_view text = is_good ? body : std::string_view(status.text);
    std::string whole = fmt::format("HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n"
                                    "{}Connection: close\r\n\r\n",
                                    status.line, prometheus_type, text.size(),
                                    verdict == Verdict::not_allowed ? "Allow: GET, HEAD\r\n" : "");
    return verdict == Verdict::metrics_head ? whole : whole + std::string(text);
}

} // namespace emm::tool::top
