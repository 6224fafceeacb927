mod due;
mod grammar;
