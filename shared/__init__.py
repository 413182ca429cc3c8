"""What all of Fallow's services share: the language, the model, the log, the view and the runtime."""
