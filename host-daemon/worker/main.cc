#include "host-daemon/worker/worker.h"

int main(int argc, char** argv) { return smolvm::worker::WorkerMain(argc, argv); }
