"""The command line, one file per verb. Heavy imports happen inside the verbs, so that --help is quick."""
