"""Where trials run: Ray and Ray Tune, their nodes, jobs, storage and interruptions."""
