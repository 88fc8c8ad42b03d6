// Carries the precompiled header that every torch target reuses.
