"""One trainer for encoders (`trainer`), made of parts that compose; `recipes` has the four with names."""
