"""The rendered default dataset: drawn shapes, clean or shifted in graded severity."""
