/* Stands in for the library of NVIDIA's driver in tests: two cards that answer as an H200 did, of which the second one has no memory
 * that corrects errors. LOST and MUTE are files: while they exist the first card is lost, and nobody is answered. */
#include <string.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, LOST_CARD = 15 };
static int cards[2];

static int answer(void *card) {
    while (access(MUTE, F_OK) == 0) usleep(1000);
    return card == &cards[0] && access(LOST, F_OK) == 0 ? LOST_CARD : OK;
}

int nvmlInit_v2(void) { return OK; }
int nvmlShutdown(void) { return OK; }
int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    strncpy(version, "580.95.05", length);
    return OK;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **card) {
    if (strcmp(uuid, FIRST) && strcmp(uuid, SECOND)) return NOT_FOUND;
    *card = &cards[strcmp(uuid, FIRST) != 0];
    return answer(*card);
}
int nvmlDeviceGetSerial(void *card, char *serial, unsigned length) {
    strncpy(serial, card == &cards[0] ? "1650123000001" : "1650123000002", length);
    return answer(card);
}
int nvmlDeviceGetUtilizationRates(void *card, unsigned rates[2]) {
    rates[0] = 37, rates[1] = 12;
    return answer(card);
}
struct memory { unsigned version; unsigned long long total, reserved, available, used; };
int nvmlDeviceGetMemoryInfo_v2(void *card, struct memory *memory) {
    memory->total = 150754820096ull, memory->reserved = 620756992ull, memory->used = 2798651904ull;
    memory->available = memory->total - memory->used - memory->reserved;
    return answer(card);
}
int nvmlDeviceGetTemperature(void *card, int sensor, unsigned *celsius) {
    *celsius = 34;
    return answer(card);
}
int nvmlDeviceGetPowerUsage(void *card, unsigned *milliwatts) {
    *milliwatts = 121370;
    return answer(card);
}
int nvmlDeviceGetTotalEnergyConsumption(void *card, unsigned long long *millijoules) {
    *millijoules = 8712345678ull;
    return answer(card);
}
int nvmlDeviceGetTotalEccErrors(void *card, int uncorrected, int aggregate, unsigned long long *count) {
    if (card == &cards[1]) return NOT_SUPPORTED;
    *count = uncorrected ? 1 : 12;
    return answer(card);
}
