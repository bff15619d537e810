// SIGINT and SIGTERM as a request to end soon: the first one is noted, the second one ends the
// command as usual. Thread-safe.
#pragma once

namespace cube::cli {

void note_interrupts();
// Returns the signal, or 0 if there was none.
int interrupted_by();

}  // namespace cube::cli
