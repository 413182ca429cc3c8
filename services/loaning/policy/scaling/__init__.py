"""How many flexible workers each elastic job gets: a multiple-choice knapsack of the run time that they save (Lyra,
EuroSys 2023, section 5.2, phase 2).
"""
