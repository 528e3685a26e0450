"""One trainer for encoders (`trainer`), made of parts that compose; `recipes` has the four that users ask for by name."""
