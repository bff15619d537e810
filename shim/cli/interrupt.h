// Treats SIGINT and SIGTERM as requests to end soon. The first signal is only noted; a second
// signal ends the command immediately. Thread-safe.
#pragma once

namespace cube::cli {

void note_interrupts();
// Returns the noted signal, or 0.
int interrupted_by();

}  // namespace cube::cli
