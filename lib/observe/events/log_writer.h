#pragma once

#include "observe/events/rows.h"
#include "observe/events/spool.h"

#include <emm/status.h>
#include <string>
#include <vector>

namespace emm::observe {

// Writes a spool's events into the log, in the order of their moments.
class LogWriter {
public:
    // `csv` is an open file, positioned at its end, which must be where the spool's header says.
    LogWriter(Spool &spool, int csv);

    Rows &rows() { return rows_; }

    // Writes the events before `watermark`; later ones stay in the spool. `buffers`: the chunks of
    // each buffer, in order. False: the log cannot be written (errno). Then no event counts as
    // written, and the log is cut accordingly.
    bool write(const std::vector<std::vector<Chunk *>> &buffers, uint64_t watermark);

    // How many of a chunk's records are in the log.
    uint32_t written(const Chunk &chunk) const;

private:
    struct Cursor; // a position in a buffer
    bool merge(const std::vector<std::vector<Chunk *>> &buffers, uint64_t watermark);
    void learn_callers();
    bool flush();
    void cut();

    Spool &spool_;
    const int csv_;
    Rows rows_;
    std::string text_;       // rows on their way to the file
    uint64_t csv_bytes_ = 0; // rows in the file
    size_t lines_known_ = 0; // bytes of the spool's text about callers that have been read
};

// Completes a log from the spool beside it.
emm_status recover_event_log(const std::string &path);

} // namespace emm::observe
