#pragma once

#include "stream.h"

#include <cuda.h>
#include <set>

namespace simcuda {

struct Graph;

// A capture in progress, and the streams that take part.
struct Capture {
    uint64_t id = 0;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    uint32_t thread = 0;
    Stream *origin = nullptr;
    bool invalid = false;
    CUgraph graph = nullptr;
    std::set<Stream *> streams;
    std::vector<Node *> left; // the last nodes of destroyed streams
};

// The call fails, and so does the capture.
[[noreturn]] void fail_capture(Capture &capture, CUresult result);

// A stream that captures is destroyed. If it is the origin, the capture has ended. If not, its last
// work must be joined already.
void destroy_in_capture(Stream &stream);
Capture *capture_into(const Graph &graph); // in progress, or NULL

// Whether work may be put on the stream: a failed capture refuses, and so does the legacy stream
// while a blocking stream captures.
void check_capture(Stream &stream);

// Refuses a call that is forbidden while a stream captures: any stream, one of the context, or one
// that the thread's mode protects. Invalidates the captures concerned.
void check_no_capture(Stream &stream);
void check_no_captures(Context &context);
void check_unsafe_call();

void add_node(Stream &stream, const Bind &bind);
void wait_in_capture(Event &event, Stream &stream);

} // namespace simcuda
