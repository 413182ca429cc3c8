"""Why a job waits: nothing that placement itself runs."""
